"""The Files API of the fake workspace: whole files in the folders of Unity Catalog volumes.

It is stricter than Databricks in one point: it refuses a file whose folder is missing, so that tests cover
the code that creates the folder.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from tests.workspace.http import Answer, RefusedRequest, Request, not_found, route

_STAMP = {"Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
_PAGE = 3  # Databricks returns 1000; with 3, four files show whether a client reads all pages.


class Volumes:
    """Files and folders by absolute path.

    Attributes:
        files: The content of each file.
        folders: Folders, including the roots of volumes.
        denied: Requests of paths with these prefixes are answered with 403.
    """

    def __init__(self) -> None:
        super().__init__()
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.denied: tuple[str, ...] = ()

    def make_volume(self, catalog: str, schema: str, name: str) -> str:
        """Create a volume, and return its path."""
        root = f"/Volumes/{catalog}/{schema}/{name}"
        self.folders.add(root)
        return root

    def drop_volume(self, catalog: str, schema: str, name: str) -> None:
        """Drop a volume with its files."""
        root = f"/Volumes/{catalog}/{schema}/{name}"
        self.folders = {path for path in self.folders if not _within(path, root)}
        self.files = {path: content for path, content in self.files.items() if not _within(path, root)}

    @route("HEAD", "/api/2.0/fs/files{path...}")
    def file_metadata(self, request: Request) -> Answer:
        content = self._file(self._path(request))
        return Answer(content, headers=_STAMP)

    @route("GET", "/api/2.0/fs/files{path...}")
    def download(self, request: Request) -> Answer:
        return Answer(self._file(self._path(request)), headers=_STAMP)

    @route("PUT", "/api/2.0/fs/files{path...}")
    def upload(self, request: Request) -> Answer:
        path = self._path(request)
        overwrite = request.query.get("overwrite", "true")
        if path in self.folders or (path in self.files and overwrite == "false"):
            raise RefusedRequest(409, "ALREADY_EXISTS", "The file being created already exists.")
        if str(PurePosixPath(path).parent) not in self.folders:
            raise not_found("The parent directory does not exist.")
        self.files[path] = request.body
        return Answer(status=204)

    @route("DELETE", "/api/2.0/fs/files{path...}")
    def delete(self, request: Request) -> Answer:
        path = self._path(request)
        self._file(path)
        del self.files[path]
        return Answer(status=204)

    @route("HEAD", "/api/2.0/fs/directories{path...}")
    def directory_metadata(self, request: Request) -> Answer:
        self._folder(self._path(request))
        return Answer(headers=_STAMP)

    @route("GET", "/api/2.0/fs/directories{path...}")
    def list_directory(self, request: Request) -> dict[str, object]:
        folder = self._path(request)
        self._folder(folder)
        inside = sorted(
            path for path in self.folders | self.files.keys() if str(PurePosixPath(path).parent) == folder
        )
        first = int(request.query.get("page_token", 0))
        page = [
            {
                "path": path,
                "name": PurePosixPath(path).name,
                "is_directory": path in self.folders,
                **({} if path in self.folders else {"file_size": len(self.files[path])}),
            }
            for path in inside[first : first + _PAGE]
        ]
        more = {"next_page_token": str(first + _PAGE)} if first + _PAGE < len(inside) else {}
        return {"contents": page, **more}

    @route("PUT", "/api/2.0/fs/directories{path...}")
    def create_directory(self, request: Request) -> Answer:
        path = PurePosixPath(self._path(request))
        folders = [str(folder) for folder in (path, *path.parents) if len(folder.parts) >= 5]
        if any(folder in self.files for folder in folders):
            raise RefusedRequest(409, "ALREADY_EXISTS", "The given path points to an existing file.")
        self.folders.update(folders)
        return Answer(status=204)

    @route("DELETE", "/api/2.0/fs/directories{path...}")
    def delete_directory(self, request: Request) -> Answer:
        path = self._path(request)
        self._folder(path)
        if any(other != path and _within(other, path) for other in self.folders | self.files.keys()):
            raise RefusedRequest(
                400,
                "INVALID_PARAMETER_VALUE",
                "The directory is not empty.",
                reason="FILES_API_DIRECTORY_IS_NOT_EMPTY",
            )
        self.folders.remove(path)
        return Answer(status=204)

    def _path(self, request: Request) -> str:
        path = PurePosixPath(request.names["path"])
        if path.parts[:2] != ("/", "Volumes") or len(path.parts) < 5:
            raise RefusedRequest(400, "INVALID_PARAMETER_VALUE", f"Invalid path: {path}")
        if str(path).startswith(self.denied or ("\0",)):
            raise RefusedRequest(403, "PERMISSION_DENIED", "User does not have READ VOLUME on Volume.")
        if str(PurePosixPath(*path.parts[:5])) not in self.folders:
            raise not_found(f"Volume '{'.'.join(path.parts[2:5])}' does not exist.")
        return str(path)

    def _file(self, path: str) -> bytes:
        if path not in self.files:
            raise not_found("The file being accessed is not found.")
        return self.files[path]

    def _folder(self, path: str) -> None:
        if path not in self.folders:
            raise not_found("The directory being accessed is not found.")


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")
