"""A stack tried for real: a PAM conversation through libpam, as sshd would hold it.

Each trial runs in a process of its own, which leads a session of its own: modules may change the process that
calls them (cgroup, limits, terminal), and one of them may end it.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from dataclasses import dataclass
from pathlib import Path

SUCCESS = 0
SERVICES = Path("/etc/pam.d")  # the only folder whose files may include others (pam_start_confdir's may not)
_TTY, _RHOST = 3, 4
_TEXTS = (3, 4)  # PAM_ERROR_MSG, PAM_TEXT_INFO
_CONV_ERR = 19
ANSWER = "\0answer "
ABRUPT = -1  # the conversation ended without an answer: a module ended the process, or took too long


@dataclass(frozen=True)
class Answer:
    """What a stack said.

    Attributes:
        code: PAM's return code; 0 lets in; ABRUPT when there was none.
        said: the code in words, and the messages to the user.
    """

    code: int
    said: str

    @property
    def admitted(self) -> bool:
        """Whether the user would get in."""
        return self.code == SUCCESS


class _Message(ctypes.Structure):
    _fields_ = (("style", ctypes.c_int), ("text", ctypes.c_char_p))


class _Response(ctypes.Structure):
    _fields_ = (("text", ctypes.c_char_p), ("code", ctypes.c_int))


_TALK = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.POINTER(_Message)),
    ctypes.POINTER(ctypes.POINTER(_Response)),
    ctypes.c_void_p,
)


class _Conversation(ctypes.Structure):
    _fields_ = (("talk", _TALK), ("data", ctypes.c_void_p))


def attempt(service: str, user: str, phase: str, limit: float = 30.0) -> Answer:
    """Ask a service's stack about a user, in a process of its own.

    Args:
        service: a file in SERVICES.
        user: the Unix account.
        phase: `account` or `session`.
        limit: seconds.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _child(writer, service, user, phase)
    os.close(writer)
    text = _read(reader, limit)
    os.close(reader)
    if ANSWER not in text:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    words, found, answer = text.partition(ANSWER)
    code, _, said = answer.strip().partition(" ")
    return (
        Answer(int(code), said) if found else Answer(ABRUPT, f"no answer; {' '.join(words.split())[-300:]}")
    )


def _child(writer: int, service: str, user: str, phase: str) -> None:
    """Talk, write the answer, end; never return."""
    try:
        os.setsid()
        os.dup2(writer, 2)  # Slurm's library says there why it ends the process
        answer = _talk(service, user, phase)
        os.write(writer, f"{ANSWER}{answer.code} {answer.said}\n".encode(errors="replace"))
    finally:
        os._exit(0)


def _read(reader: int, limit: float) -> str:
    """What comes through the pipe until the answer is whole, or the limit (or the child) ends."""
    text, end = b"", time.monotonic() + limit
    while not (ANSWER.encode() in text and text.endswith(b"\n")):
        if not select.select([reader], [], [], max(0.0, end - time.monotonic()))[0]:
            break
        more = os.read(reader, 65536)
        if not more:
            break
        text += more
    return text.decode(errors="replace")


def _talk(service: str, user: str, phase: str) -> Answer:
    library = _library()
    heard: list[str] = []

    def hear(count: int, messages: object, responses: object, _: object) -> int:
        texts = [messages[i].contents for i in range(count)]  # type: ignore[index]
        heard.extend((m.text or b"").decode(errors="replace") for m in texts if m.style in _TEXTS)
        if not all(m.style in _TEXTS for m in texts):
            return _CONV_ERR  # it wants a password, which we have not
        calloc = ctypes.CDLL(None).calloc
        calloc.restype = ctypes.c_void_p
        memory = calloc(count, ctypes.sizeof(_Response))  # PAM frees it
        responses[0] = ctypes.cast(memory, ctypes.POINTER(_Response))  # type: ignore[index]
        return SUCCESS

    conversation = _Conversation(_TALK(hear), None)
    handle = ctypes.c_void_p()
    about = (service.encode(), user.encode(), ctypes.byref(conversation), ctypes.byref(handle))
    code = library.pam_start(*about)
    if code == SUCCESS:
        library.pam_set_item(handle, _TTY, b"ssh")
        library.pam_set_item(handle, _RHOST, b"localhost")
        ask = library.pam_acct_mgmt if phase == "account" else library.pam_open_session
        code = ask(handle, 0)
    library.pam_strerror.restype = ctypes.c_char_p
    words = [(library.pam_strerror(handle, code) or b"").decode(), *heard]
    return Answer(code, "; ".join(word.replace("\n", " ") for word in words))


def _library() -> ctypes.CDLL:
    # For all to see, as in sshd: pam_slurm_adopt.so itself is not linked with libpam.
    return ctypes.CDLL("libpam.so.0", mode=ctypes.RTLD_GLOBAL)


def loads(module: str) -> str:
    """Why a PAM module cannot be used for the account phase; empty when it can."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _library()  # modules are loaded into what has libpam
            ctypes.CDLL(module).pam_sm_acct_mgmt  # noqa: B018
        except (OSError, AttributeError) as error:
            os.write(writer, str(error).encode()[:500])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        said = file.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return said or (f"it ended the process (status {status})" if status else "")
