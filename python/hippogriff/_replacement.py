"""Files that are replaced as a whole: the old one or the new one is there, also after a crash."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from hippogriff.errors import HippogriffError, InvalidArgument, IoError, io_error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hippogriff._runtime import PathLike


_NAME_BYTES_MAX = 255
_LOOKS_MAX = 100
# Creating the file tells what else is wrong.
_NOTHING_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Replacement:
    """A new file beside another one, to be renamed over it once its bytes are there."""

    def __init__(self, path: PathLike) -> None:
        if not os.fsdecode(path):  # the file system takes it for the working directory
            raise InvalidArgument("the path is empty", object="")
        self._target = Path(os.path.realpath(os.fsdecode(path)))
        try:
            _check_target(self._target)
            _check_name(path, self._target)
        except OSError as error:
            raise io_error("replace", str(self._target), error) from None
        end = f".hippogriff-{os.getpid()}-{secrets.token_hex(6)}".encode()
        name = os.fsencode(self._target.name)[: _NAME_BYTES_MAX - 1 - len(end)]
        self._temporary = self._target.with_name(os.fsdecode(b"." + name + end))
        self._process = os.getpid()
        self._descriptor = -1
        self._mode = 0o600
        self._old: os.stat_result | None = None
        self._has_name = True  # or will have: whoever opens it by that makes it
        #: By what the new file can be opened until `commit` or `discard`.
        self.temporary = os.fsencode(self._temporary)
        #: The file at the end of the symbolic links.
        self.name = str(self._target)

    def write_empty(self) -> None:
        """Make the file empty."""
        self.create(0o666)
        self.commit()

    def create(self, mode: int, size_bytes: int = 0) -> None:
        """Make the new file with room for its bytes, and this mode less the umask.

        If it replaces another, nobody else may read it before it has that one's mode. Where the
        file system can, it has no name before `commit`: a process that is killed leaves nothing,
        unless in the moment between the name that it gets there and taking the old file's.
        """
        try:
            self._old = self._look()
            mode = mode if self._old is None else 0o600
            # Whoever writes it may open it again by its way in /proc, and must be let.
            self._descriptor = self._open(mode | stat.S_IRUSR | stat.S_IWUSR)
            self._mode = mode & os.fstat(self._descriptor).st_mode
            if size_bytes:
                expect_room(self._descriptor, size_bytes)
                os.posix_fallocate(self._descriptor, 0, size_bytes)
        except OSError as error:
            failure = io_error("create", self.name, error)
            self.discard(failure)
            raise failure from None
        except BaseException:
            self.discard()
            raise

    def _look(self) -> os.stat_result | None:
        """Return what is at the target; None: nothing, or what creating a file there will tell."""
        try:
            return self._target.stat()
        except OSError as error:
            if error.errno in _NOTHING_THERE:
                return None
            raise

    def _open(self, mode: int) -> int:
        try:
            flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
            descriptor = os.open(self._target.parent, flags, mode)
        except OSError:  # as NFS; what else is wrong is told with a name
            return self._open_named(mode)
        way = f"/proc/self/fd/{descriptor}"
        if not Path(way).exists():  # without /proc it could get no name
            os.close(descriptor)
            return self._open_named(mode)
        self.temporary = os.fsencode(way)
        self._has_name = False
        return descriptor

    def _open_named(self, mode: int) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._temporary, flags, mode)

    def fileno(self) -> int:
        """Return the descriptor of the new file, which belongs to this object."""
        return self._descriptor

    def _call_by_name(self, error: HippogriffError) -> None:
        """Let an error call the new file as it was to be called."""
        for name in (os.fsdecode(self.temporary), self._name_in_proc()):
            if name and name in str(error):
                error.args = (str(error).replace(name, self.name),)
                error.object = error.object.replace(name, self.name)
                if isinstance(error, IoError):
                    error.filename = error.object

    def _name_in_proc(self) -> str:
        try:
            return str(Path(f"/proc/self/fd/{self._descriptor}").readlink())
        except OSError:
            return ""

    def remove_old(self) -> None:
        """Remove the file that it will replace, and have that on the disk."""
        try:
            with self._synced_folder(), contextlib.suppress(FileNotFoundError):
                self._old = self._target.stat()
                self._target.unlink()
        except OSError as error:
            raise self._failed("remove", error) from None

    def commit(self) -> None:
        """Rename it over the file, with that one's mode, or with that of the one that was there.

        Raises
        ------
        IoError
            When that fails. Of operation "sync folder": it is there, and a crash may undo that.
        """
        try:
            with self._synced_folder() as folder:
                self._take_the_name(folder)
        except OSError as error:
            failure = self._failed("rename", error)
            self.discard(failure)
            raise failure from None
        self._close()

    def _failed(self, operation: str, error: OSError) -> HippogriffError:
        if isinstance(error, HippogriffError):
            return error
        return io_error(operation, self.name, error)

    @contextlib.contextmanager
    def _synced_folder(self) -> Iterator[int]:
        """Give the folder's descriptor; what was done in it is on the disk behind the scope."""
        folder = os.open(self._target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield folder
            try:
                os.fsync(folder)
            except OSError as error:
                if error.errno != errno.EINVAL:  # from file systems that sync none
                    raise io_error("sync folder", str(self._target.parent), error) from None
        finally:
            os.close(folder)

    def _take_the_name(self, folder: int) -> None:
        # Before it has a name, and by the descriptor: the name may be another file's by then.
        there = self._look()
        old = there or self._old
        if old is None:
            os.fchmod(self._descriptor, self._mode)
        else:
            _keep_mode(self._descriptor, old)
        if there is None and not self._has_name:
            with contextlib.suppress(FileExistsError):  # meanwhile
                os.link(self.temporary, self._target.name, dst_dir_fd=folder)
                return
        if not self._has_name:
            self._has_name = True  # Before it has: an interrupt may come behind the call.
            # With a folder's descriptor, without which Python does not follow the link.
            os.link(self.temporary, self._temporary.name, dst_dir_fd=folder)
        self._temporary.replace(self._target)

    def discard(self, failure: BaseException | None = None) -> None:
        """Remove it. Where it stays, the failure that it is removed for has that as a note."""
        if isinstance(failure, HippogriffError):
            self._call_by_name(failure)
        if not self._has_name:
            self._empty()
            self._close()
            return
        try:
            self._temporary.unlink(missing_ok=True)
            self._empty()
        except OSError as error:
            # As on a file system that became read-only with the first failure, which tells why.
            note = str(io_error("remove", str(self._temporary), error))
            if failure is not None and note not in getattr(failure, "__notes__", ()):
                failure.add_note(note)
        finally:
            self._close()

    def _empty(self) -> None:
        """Give its room back now: a forked child may hold it. Not what has become the file."""
        with contextlib.suppress(OSError):
            if self._descriptor >= 0 and os.fstat(self._descriptor).st_nlink == 0:
                os.ftruncate(self._descriptor, 0)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", -1) < 0:
            return  # It was committed or discarded.
        if self._process == os.getpid():
            self.discard()
        else:
            self._close()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def expect_room(file: int, size_bytes: int) -> None:
    """Refuse what a file's file system has no room for: allocating it would take what there is.

    Raises
    ------
    OSError
        ENOSPC, with how much there is.
    """
    facts = os.fstatvfs(file)
    room = facts.f_frsize * (facts.f_bfree if os.geteuid() == 0 else facts.f_bavail)
    if facts.f_blocks and room < size_bytes:  # no blocks: it does not tell
        words = f"{os.strerror(errno.ENOSPC)}: {size_bytes} bytes are wanted, {room} are free"
        raise OSError(errno.ENOSPC, words)


def _check_target(target: Path) -> None:
    """Refuse what is no file, or may not be written, which the folder alone would let be replaced.

    What somebody removes or replaces between two looks is looked at again.
    """
    seen = None
    for _ in range(_LOOKS_MAX):
        try:
            facts = target.stat()
        except OSError as error:
            if error.errno in _NOTHING_THERE:
                return
            raise
        if not stat.S_ISREG(facts.st_mode):
            raise InvalidArgument(
                f"{target} is no regular file: it would be replaced", object=os.fspath(target)
            )
        if os.access(target, os.W_OK, effective_ids=True):
            return
        if (facts.st_ino, facts.st_ctime_ns) == seen:
            break
        seen = facts.st_ino, facts.st_ctime_ns
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _check_name(path: PathLike, target: Path) -> None:
    """Refuse what has no name: the links of /proc lead there, too, with a text that is no path.

    What somebody replaces between two looks is looked at again.
    """
    for _ in range(_LOOKS_MAX):
        try:
            there = os.stat(path)  # noqa: PTH116 (bytes, too)
        except OSError:
            return  # There is none yet.
        with contextlib.suppress(OSError):
            if os.path.samestat(there, target.stat()):
                return
    why = "has no name that a new one could take" if stat.S_ISREG(there.st_mode) else "is no file"
    raise InvalidArgument(f"{os.fsdecode(path)} {why}", object=os.fsdecode(path))


def _keep_mode(descriptor: int, old: os.stat_result) -> None:
    """Give a new file the old one's mode and, where the system lets it, owner."""
    mode = stat.S_IMODE(old.st_mode)
    for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
        try:
            os.fchown(descriptor, owner, group)
        except OSError:
            # These bits would lend the rights of somebody else than before.
            mode &= ~(stat.S_ISUID | stat.S_ISGID)
    os.fchmod(descriptor, mode)
