"""Make the environment with nothing but Python 3.11+: ``python3 tools/setup.py [PART]``.

Without an argument: creates ``.venv``, installs ``requirements.lock`` and the package itself.
With ``system``: installs bubblewrap, PostgreSQL and libseccomp for the grader's tests.
With ``browser``: finds a Chromium for the browser tests, or installs one.
With ``hub``: installs JupyterHub and its proxy into ``.venv``, for the test of a term on a hub.
Safe to interrupt and to repeat; a finished set-up is recognised by a hash and skipped at once.
"""

import ctypes.util
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("VENV", ROOT / ".venv"))
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
STAMP = VENV / ".attn-course-setup"
LOCK, PROJECT = ROOT / "requirements.lock", ROOT / "pyproject.toml"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "chrome")
NETWORK_SIGNS = (
    "NewConnectionError",
    "ConnectionError",
    "Temporary failure in name resolution",
    "Name or service not known",
    "getaddrinfo failed",
    "Network is unreachable",
    "Connection refused",
    "ReadTimeoutError",
    "Connection broken",
    "Max retries exceeded",
)


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def fail(text: str) -> None:
    """End with the one line that says what to do."""
    print(f"setup: error: {text}", file=sys.stderr, flush=True)
    raise SystemExit(1)


def run(*command: str | Path) -> str:
    """Run a step with its output shown as it comes; return that output, or end with the cause."""
    process = subprocess.Popen(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        cwd=ROOT,
    )
    lines: list[str] = []
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        if not line.startswith(
            ("Requirement already satisfied", "Looking in", "WARNING: Location")
        ):
            print("  " + line.rstrip()[:160], flush=True)
    if process.wait() == 0:
        return "".join(lines)
    output = "".join(lines)
    step = " ".join(str(part) for part in command[:4])
    if "No space left on device" in output:
        fail("the disk is full: free about 4 GB and run the same command again")
    if any(sign in output for sign in NETWORK_SIGNS):
        fail(
            "the package registry could not be reached: check the network (or PIP_INDEX_URL) "
            "and run the same command again; what is installed is kept"
        )
    fail(f"'{step} ...' ended with status {process.returncode}; the lines above say why")
    return output


def fingerprint() -> str:
    """Changes when the lock, the metadata or the interpreter changes."""
    digest = hashlib.sha256(sys.version.encode())
    for path in (LOCK, PROJECT):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def environment() -> None:
    """Create ``.venv`` and install the locked packages and this one, unless that is done."""
    if sys.version_info < (3, 11):  # noqa: UP036  an older Python runs this line to say so
        found = ".".join(map(str, sys.version_info[:3]))
        fail(f"Python 3.11 or newer is needed, found {found}: run 'make PYTHON=python3.12 ...'")
    if shutil.which("git") is None:
        fail("git is needed and not on PATH: install it (Debian: apt-get install git)")
    if STAMP.exists() and STAMP.read_text() == fingerprint():
        return
    python = BIN / ("python.exe" if os.name == "nt" else "python")
    if (
        not python.exists()
        or subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode
    ):
        say(f"1/3 creating {VENV} with Python {sys.version.split()[0]}")
        made = subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(VENV)], capture_output=True, text=True
        )
        if made.returncode:
            shutil.rmtree(VENV, ignore_errors=True)
            fail(
                f"{sys.executable} cannot make a virtual environment: install its venv module "
                f"(Debian: apt-get install python3-venv) and run the same command again"
            )
    count = sum("==" in line for line in LOCK.read_text().splitlines())
    say(f"2/3 installing {count} locked packages (about two minutes on a fast line)")
    run(python, "-m", "pip", "install", "--disable-pip-version-check", "-r", LOCK)
    say("3/3 installing attn-course itself")
    run(
        *(python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"),
        *("--no-deps", "--no-build-isolation", "--editable", ROOT),
    )
    STAMP.write_text(fingerprint())
    say("done")


def find_chromium() -> str | None:
    """The Chromium that the browser tests will use: ``$CHROMIUM``, one on PATH, or Playwright's."""
    if given := os.environ.get("CHROMIUM"):
        return given if Path(given).exists() else None
    for name in CHROMIUM_NAMES:
        if path := shutil.which(name):
            return path
    ask = (
        "from playwright.sync_api import sync_playwright as start\n"
        "with start() as browsers: print(browsers.chromium.executable_path)"
    )
    answer = subprocess.run([BIN / "python", "-c", ask], capture_output=True, text=True)
    path = answer.stdout.strip()
    return path if path and Path(path).exists() else None


def missing_packages() -> list[str]:
    """Debian packages that the grader's tests need and that are not there."""
    needs = {
        "bubblewrap": shutil.which("bwrap") is not None,
        "postgresql": any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        or shutil.which("initdb") is not None,
        "libseccomp2": ctypes.util.find_library("seccomp") is not None
        or any(Path("/usr/lib").glob("*/libseccomp.so.2")),
    }
    return [name for name, found in needs.items() if not found]


def system() -> None:
    """Install what the tests of the grader need from the system; readers need none of it."""
    missing = missing_packages()
    if not missing:
        return
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing]
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        # Debian would start a server of its own after the installation; the tests start theirs
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for command in (["apt-get", "update", "-qq"], install):
            say(f"running: {' '.join(command)}")
            subprocess.run(
                command, cwd=ROOT, env=quiet, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
            )
        missing = missing_packages()
    if missing:
        fail(
            f"the tests of the grader need {', '.join(missing)}: "
            f"sudo apt-get install {' '.join(missing)} (or your system's packages of that name)"
        )


def browser() -> None:
    """Find or install Chromium: Debian's package for root, else Playwright's own build."""
    if os.environ.get("ATTN_NO_BROWSER") == "1":
        say("ATTN_NO_BROWSER=1: the browser tests will be left out")
        return
    if given := os.environ.get("CHROMIUM"):
        if not Path(given).exists():
            fail(f"CHROMIUM={given} does not exist: name a Chromium or unset the variable")
        return
    if find_chromium():
        return
    attempts: list[list[str]] = []
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        attempts += [
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
        ]
    else:
        attempts += [[str(BIN / "playwright"), "install", "chromium"]]
    for command in attempts:
        say(f"no Chromium found, running: {' '.join(command)}")
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    if not find_chromium():
        fail(
            "the browser tests need Chromium and it could not be installed: install it "
            "(Debian: apt-get install chromium), set CHROMIUM=/path/to/it, "
            "or leave those tests out with ATTN_NO_BROWSER=1"
        )


def hub() -> None:
    """Install JupyterHub beside the locked packages, and its proxy, for one nightly test."""
    programs = BIN / "jupyterhub", BIN / "configurable-http-proxy"
    if all(program.exists() for program in programs):
        return
    if shutil.which("npm") is None:
        fail("the proxy of JupyterHub needs npm and Node.js 20: install them (nodejs.org)")
    say("installing JupyterHub and its proxy")
    run(BIN / "python", "-m", "pip", "install", "--constraint", LOCK, "jupyterhub>=5.2")
    run("npm", "install", "--silent", "--prefix", VENV, "configurable-http-proxy@5.3.0")
    if not programs[1].exists():
        programs[1].symlink_to(VENV.resolve() / "node_modules/.bin/configurable-http-proxy")


if __name__ == "__main__":
    try:
        steps = {"environment": environment, "browser": browser, "system": system, "hub": hub}
        steps[(sys.argv[1:] or ["environment"])[0]]()
    except KeyboardInterrupt:
        fail("interrupted: run the same command again to continue")
