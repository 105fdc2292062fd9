CASES = {
    "nearest_to_sum": {"nearest": [("king", 0.58), ("woman", 0.51)], "ranks": [7, 25]},
    "analogies_solved": {
        "solved": {
            way: [[share, share + 0.1], [share + 0.2, share]]
            for way, share in (
                ("all words", 0.1),
                ("a given word", 0.7),
                ("given words left out", 0.4),
                ("c alone", 0.3),
            )
        },
        "questions": 50,
    },
}
