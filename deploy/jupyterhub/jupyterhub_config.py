"""JupyterHub for one course on one Linux machine: copy to /etc/jupyterhub/.

Every student is a user of the system (PAM), so that nbgrader's exchange is guarded by the rights
of files. A server with TLS, such as nginx or Caddy, stands in front.
"""

import sys
from pathlib import Path

PROGRAMS = Path(sys.executable).parent

c = get_config()  # noqa: F821 - JupyterHub defines it

c.JupyterHub.bind_url = "http://127.0.0.1:8000"
c.JupyterHub.cookie_secret_file = "/srv/jupyterhub/cookie_secret"
c.JupyterHub.db_url = "sqlite:////srv/jupyterhub/jupyterhub.sqlite"
c.ConfigurableHTTPProxy.pid_file = "/srv/jupyterhub/proxy.pid"

c.PAMAuthenticator.allowed_groups = {"attention"}  # students and staff; sign-up is yours to do

c.Spawner.cmd = [str(PROGRAMS / "jupyterhub-singleuser")]
c.Spawner.environment = {"PATH": f"{PROGRAMS}:/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
c.Spawner.default_url = "/lab"
