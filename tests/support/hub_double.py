"""A double of the hub's endpoint on this machine: the pages that `huggingface_hub` asks for a data set."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from huggingface_hub import constants

SHA = "a" * 40


def blob(data):
    return hashlib.sha1(data).hexdigest()


@contextmanager
def hub_of(sets, cache, monkeypatch):
    """sets: {"owner/name": {"path": bytes}}. cache: a folder for what is fetched."""
    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, code, body=b"", **headers):
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def do_GET(self):
            words = unquote(urlsplit(self.path).path).strip("/").split("/")
            if words[:2] == ["api", "datasets"]:
                files = sets.get("/".join(words[2:4]))
                if files is None:
                    return self.reply(404, X_Error_Code="RepoNotFound")
                if words[4] == "tree":
                    return self.reply(200, json.dumps([
                        {"type": "file", "path": path, "size": len(data), "oid": blob(data)}
                        for path, data in files.items()]).encode(), Content_Type="application/json")
                about = {"id": "/".join(words[2:4]), "sha": SHA}
                return self.reply(200, json.dumps(about).encode(), Content_Type="application/json")
            data = sets["/".join(words[1:3])]["/".join(words[5:])]
            return self.reply(200, data, ETag=f'"{blob(data)}"', X_Repo_Commit=SHA)

        do_HEAD = do_GET

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE",
                        address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    try:
        yield address
    finally:
        server.shutdown()
        server.server_close()
