"""A double of the hub's endpoint on this machine: the pages that `huggingface_hub` asks for a data set, and
those to which it uploads a model."""

import base64
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
    """sets: {"owner/name": {"path": bytes}}, where uploads go too; only owner "me" may write. cache: a folder
    for what is fetched."""
    large = {}  # by sha256, until a commit names them

    class Pages(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def reply(self, code, body=b"", **headers):
            self.send_response(code)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self):
            words = unquote(urlsplit(self.path).path).strip("/").split("/")
            if words[:2] == ["api", "models"]:
                return self.reply(404, X_Error_Code="RepoNotFound")
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

        def body(self):
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = b""
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return data

        def say(self, value, code=200):
            self.reply(code, json.dumps(value).encode(), Content_Type="application/json")

        def do_PUT(self):
            data = self.body()
            large[hashlib.sha256(data).hexdigest()] = data
            self.reply(200)

        def do_POST(self):
            words, data = unquote(urlsplit(self.path).path).strip("/").split("/"), self.body()
            if words == ["api", "validate-yaml"]:
                good = "license: nonsense" not in json.loads(data)["content"]
                return (self.say({"errors": [], "warnings": []}) if good
                        else self.reply(400, b"no such license"))
            if words == ["api", "repos", "create"]:
                about = json.loads(data)
                if about.get("organization") != "me":
                    return self.reply(403)
                sets.setdefault(f"me/{about['name']}", {})
                return self.say({"url": f"{address}/me/{about['name']}"})
            if words[-4:] == ["info", "lfs", "objects", "batch"]:
                return self.say({"transfer": "basic", "objects": [
                    {**item, "actions": {"upload": {"href": f"{address}/upload/{item['oid']}"}}}
                    for item in json.loads(data)["objects"]]})
            if words[4] == "preupload":
                return self.say({"files": [
                    {"path": file["path"], "shouldIgnore": False,
                     "uploadMode": "lfs" if file["path"].endswith(".safetensors") else "regular"}
                    for file in json.loads(data)["files"]]})
            assert words[4] == "commit", self.path
            repository = sets["/".join(words[2:4])]
            for line in map(json.loads, data.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    repository[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    repository[value["path"]] = large[value["oid"]]
            return self.say({"commitUrl": f"{address}/{'/'.join(words[2:4])}/commit/{SHA}", "commitOid": SHA})

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
