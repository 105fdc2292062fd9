"""Serve the built site on this machine only."""

import errno
import functools
import http.server

from .common import Book, fail, say


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the site, without a line for each request, and never stale after a rebuild."""

    extensions_map = {  # noqa: RUF012  the class attribute of the base class
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".ipynb": "application/x-ipynb+json",
        ".js": "text/javascript",
        ".mjs": "text/javascript",
        ".woff2": "font/woff2",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


class Server(http.server.ThreadingHTTPServer):
    """Threads end with the program; a taken port is an error, not a silent share."""

    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # the browser closed the connection


def serve(book: Book, *, port: int) -> None:
    """Serve until Ctrl-C.

    Raises:
        BookError: there is no site, or the port is taken.
    """
    if not (book.html / "index.html").is_file():
        fail(f"there is no site in {book.html}: run 'make html' first")
    handler = functools.partial(Handler, directory=str(book.html))
    try:
        server = Server(("127.0.0.1", port), handler)
    except PermissionError:
        fail(f"port {port} needs more rights than yours: choose another, 'make serve PORT=8001'")
    except OverflowError:
        fail(f"{port} is no port: choose one from 1024 to 65535, 'make serve PORT=8001'")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        fail(f"port {port} is taken: choose another, 'make serve PORT={port + 1}'")
    with server:
        say(f"the book is at http://127.0.0.1:{server.server_address[1]} (Ctrl-C ends it)")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
            say("stopped")
