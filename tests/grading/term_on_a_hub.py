"""A term of one set with two students on a real JupyterHub, as deploy/jupyterhub has it.

Run by ``test_deploy.py`` as root, in namespaces of its own: what is made below /etc, /home and
/srv, the ports and the processes are gone at its end, and there is no network.
"""

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import nbformat
import requests
import sets

ROOT, DEPLOY, SLUG = sets.ROOT, sets.ROOT / "deploy/jupyterhub", "00_warm_up"
COURSE, EXCHANGE = Path("/home/instructor/attention"), Path("/srv/nbgrader/exchange")
WRONG = """def stable_softmax(scores, dim=-1):
    weights = scores.exp()
    return weights / weights.sum(dim, keepdim=True)"""
HUB = "http://127.0.0.1:8000"
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}


def run(*command, user=None, succeeds=(0,)):
    home = f"/home/{user}" if user else "/root"
    done = subprocess.run(
        list(map(str, command)),
        cwd=COURSE if user == "instructor" else home,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        env=ENVIRONMENT | {"HOME": home, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode in succeeds, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Student:
    """Signed in with a password, as a browser is: cookies, and the form's token with each call."""

    def __init__(self, name):
        self.name, self.web = name, requests.Session()
        self.web.get(f"{HUB}/hub/login")
        form = {"username": name, "password": f"{name}'s", "_xsrf": self.web.cookies["_xsrf"]}
        self.web.post(f"{HUB}/hub/login", data=form).raise_for_status()
        self.web.get(f"{HUB}/hub/spawn/{name}")
        until(lambda: self.web.get(f"{HUB}/user/{name}/lab").url.endswith("/lab"))

    def call(self, method, path, server=None, **more):
        server = server or self.name
        cookies = [one for one in self.web.cookies if one.name == "_xsrf" and server in one.path]
        headers = {"X-XSRFToken": cookies[0].value if cookies else ""}
        return self.web.request(method, f"{HUB}/user/{server}/{path}", headers=headers, **more)

    def assignments(self, action):
        form = {"course_id": "attn-course", "assignment_id": SLUG}
        said = self.call("POST", f"assignments/{action}", data=form).json()
        assert said["success"], said
        return said["value"]

    def contents(self, method, path, **more):
        done = self.call(method, f"api/contents/{path}", **more)
        done.raise_for_status()
        return done.json()["content"]


def until(holds, seconds=300):
    end = time.monotonic() + seconds
    while True:
        try:
            if holds():
                return
        except requests.RequestException:
            pass
        assert time.monotonic() < end, f"not in {seconds} s; {Path('/srv/hub.log').read_text()}"
        time.sleep(1)


def install():
    """The commands of book/deploy.md."""
    run("groupadd", "attention")
    for name in ("instructor", "ada", "bo"):
        run("useradd", "--create-home", "--groups", "attention", name)
        subprocess.run(["chpasswd"], input=f"{name}:{name}'s", text=True, check=True)
        run("chmod", "700", f"/home/{name}")
    run("install", "-d", "-m", "700", "/srv/jupyterhub")
    run("install", "-d", "-m", "1777", EXCHANGE)
    run("install", "-D", "-t", "/etc/jupyter", DEPLOY / "nbgrader_config.py")
    run("install", "-D", "-t", "/etc/jupyterhub", DEPLOY / "jupyterhub_config.py")
    COURSE.mkdir()
    shutil.copy(ROOT / "nbgrader_config.py", COURSE)
    (COURSE / f"build/source/{SLUG}").mkdir(parents=True)
    (COURSE / f"build/source/{SLUG}/{SLUG}.ipynb").write_text(nbformat.writes(sets.source(SLUG)))
    run("chown", "-R", "instructor:instructor", COURSE)


def start():
    command = ["jupyterhub", "--config", "/etc/jupyterhub/jupyterhub_config.py"]
    with open("/srv/hub.log", "w") as log:
        subprocess.Popen(
            command, cwd="/srv/jupyterhub", env=ENVIRONMENT, stdout=log, stderr=subprocess.STDOUT
        )
    until(lambda: requests.get(f"{HUB}/hub/login").ok)


def main():
    install()
    start()
    for step in ("generate_assignment", "release_assignment"):
        run("nbgrader", step, SLUG, user="instructor")

    ada, bo = Student("ada"), Student("bo")
    path = f"{SLUG}/{SLUG}.ipynb"
    for student in (ada, bo):
        student.assignments("fetch")
        notebook = student.contents("GET", path)
        answers = sets.answers(SLUG)
        if student is bo:
            answers["stable_softmax"] = WRONG
        for cell in notebook["cells"]:
            grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
            cell["source"] = answers.get(grade_id, cell["source"])
        student.contents("PUT", path, json={"type": "notebook", "content": notebook})
        student.assignments("submit")

    run("nbgrader", "collect", SLUG, user="instructor")
    graded = run(
        "attn-course", "grade", "submitted", "--assignment", SLUG, "--json", "-",
        user="instructor",
    )  # fmt: skip
    marks = {one["student"]: one for one in json.loads(graded)["submissions"]}
    assert all(one["sandboxed"] and one["status"] == "graded" for one in marks.values())
    run("nbgrader", "generate_feedback", SLUG, "--force", user="instructor")
    run("nbgrader", "release_feedback", SLUG, user="instructor")

    pages = {}
    for student in (ada, bo):
        student.assignments("fetch_feedback")
        (folder,) = student.contents("GET", f"{SLUG}/feedback")
        (page,) = student.contents("GET", folder["path"])
        pages[student.name] = student.contents("GET", page["path"])

    of_bo = ada.call("GET", f"api/contents/{path}", server="bo").status_code
    find = f"find {EXCHANGE} /home/bo {COURSE} -readable -type f 2>/dev/null; true"
    seen = run("sh", "-c", find, user="ada").split("\n")[:-1]
    print(json.dumps({"marks": marks, "pages": pages, "of_bo": of_bo, "seen": seen}))


if __name__ == "__main__":
    main()
