"""Students on the Hugging Face Hub: a repository holds the folder that `Student.save` writes."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MESSAGE = "A student of Solera"


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise ImportError("the Hub is reached through huggingface_hub: pip install 'solera[hub]'") from None
    return huggingface_hub


@contextmanager
def downloaded(repo_id: str, revision: str | None, token: str | bool | None, local_files_only: bool) -> Iterator[Path]:
    """A repository's files in a folder that lasts as long as they are read.

    The Hub's cache keeps links to files elsewhere, which a student's folder may not have: so they are copied.
    """
    kept = _hub().snapshot_download(repo_id, revision=revision, token=token, local_files_only=local_files_only)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / repo_id.replace("/", "--")
        shutil.copytree(kept, folder, ignore=shutil.ignore_patterns(".*"))
        yield folder


def uploaded(
    folder: Path, repo_id: str, private: bool | None, token: str | bool | None, revision: str | None, message: str
) -> str:
    """Puts the files of a folder into a repository, which is made where there is none; returns the address."""
    api = _hub().HfApi(token=token)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision is not None:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    done = api.upload_folder(repo_id=repo_id, folder_path=folder, revision=revision, commit_message=message)
    return str(done.commit_url)
