"""What the wheel needs beyond the package folder: misconceptions, recorded results, experiments.

``misconceptions.py`` and ``oracles.py`` of ``solutions/<slug>`` go to
``attn_course/probes/catalogue/<slug>/``, so that a learner who has only the wheel and a notebook
can run its tests, and is told by name what went wrong. Solutions and variants stay out.
``experiments/results/*.json`` becomes ``attn_course/data/results/``, where
``attn_course.data.load_results`` finds it; scripts of experiments and benchmarks go to
``attn_course/scripts/``, for notebooks that import one. An editable install reads the
files where they are.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds them to a standard wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        for name in ("misconceptions.py", "oracles.py"):
            for source in sorted(Path(self.root).glob(f"solutions/*/{name}")):
                target = f"attn_course/probes/catalogue/{source.parent.name}/{name}"
                build_data["force_include"][str(source)] = target
        for source in sorted(Path(self.root).glob("experiments/results/*.json")):
            build_data["force_include"][str(source)] = f"attn_course/data/results/{source.name}"
        scripts = [
            *Path(self.root).glob("experiments/**/*.py"),
            *Path(self.root).glob("benchmarks/*.py"),
        ]
        for source in sorted(scripts):
            target = f"attn_course/scripts/{source.relative_to(self.root).as_posix()}"
            build_data["force_include"][str(source)] = target
