"""Ways to spoil files: some know nothing of what they spoil, some only that it is text or JSON."""

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from random import Random

Files = Mapping[str, bytes]
"""Something that lies in files, by name."""
Spoiler = Callable[[Random, bytes], bytes]

CANARY = "canary-of-rubbish"
"""A file that would exist if anything that we plant were ever executed."""
EXECUTING = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pickle.find_class"}

WORDS = (
    b"nan inf -inf 1e400 -1 0 1 2.5 1e-320 1e30 true false null none None [] {} [1] \"\" 'x' 1979-05-27 0x10 1_0 +1 .5 "
    b"implicit uniform edges digits usps setup eval train pull final"
).split()
HUGE = (b"9" * 400, b"9" * 5000, b"1" + b"0" * 30, b"x" * 3000, b"[" * 3000, b'{"a":' * 1000, b"-" + b"9" * 25)
FOREIGN = (
    b"\0",
    b"\x1b[31m",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    "é×中".encode(),
    b"\r\n",
    b"\n\n",
    b'"',
    b",",
    b"=",
    b"\\u0000",
)
PLANTED = (
    f"__import__('os').system('touch {CANARY}')".encode(),
    f"$(touch {CANARY})".encode(),
    f"; touch {CANARY} #".encode(),
    f"!!python/object/apply:os.system ['touch {CANARY}']".encode(),
    f"cos\nsystem\n(S'touch {CANARY}'\ntR.".encode(),
    b"<script>alert(1)</script>",
)


def watch(executed: list[str]) -> None:
    """From now on note whatever this process executes."""

    def hear(event: str, arguments: tuple[object, ...]) -> None:
        if event in EXECUTING or (event == "compile" and CANARY in str(arguments[0])):
            executed.append(f"{event} {arguments!r:.80}")

    sys.addaudithook(hear)


def flip(rng: Random, data: bytes) -> bytes:
    """A few bytes with other bits."""
    altered = bytearray(data or b" ")
    for _ in range(rng.randint(1, 4)):
        altered[rng.randrange(len(altered))] ^= rng.randint(1, 255)
    return bytes(altered)


def cut(rng: Random, data: bytes) -> bytes:
    """The beginning, or the end."""
    place = rng.randint(0, len(data))
    return data[:place] if rng.random() < 0.7 else data[place:]


def insert(rng: Random, data: bytes) -> bytes:
    """Something foreign in between."""
    place = rng.randint(0, len(data))
    return data[:place] + rng.choice([*FOREIGN, *PLANTED, *HUGE, rng.randbytes(8)]) + data[place:]


def repeat(rng: Random, data: bytes) -> bytes:
    """A part of it twice."""
    begin, end = sorted(rng.randint(0, len(data)) for _ in range(2))
    return data[:end] + data[begin:end] + data[end:]


def replace(rng: Random, data: bytes) -> bytes:
    """Something else altogether."""
    return rng.choice(
        [b"", b"{}", b"[]", b"null", *PLANTED, rng.randbytes(50), data.decode("latin-1").encode("utf-16")]
    )


def lines(rng: Random, data: bytes) -> bytes:
    """Lines left out, repeated or in another order."""
    found = data.split(b"\n")
    one, other = rng.randrange(len(found)), rng.randrange(len(found))
    match rng.randrange(3):
        case 0:
            del found[one]
        case 1:
            found.insert(other, found[one])
        case _:
            found[one], found[other] = found[other], found[one]
    return b"\n".join(found)


def words(rng: Random, data: bytes) -> bytes:
    """A word or a number is another one."""
    places = [found.span() for found in re.finditer(rb"[-+.\w]+", data)]
    if not places:
        return insert(rng, data)
    begin, end = rng.choice(places)
    new = rng.choice(WORDS if rng.random() < 0.8 else [*HUGE, *FOREIGN, *PLANTED])
    if rng.random() < 0.2:  # one that occurs elsewhere
        new = data[slice(*rng.choice(places))]
    return data[:begin] + new + data[end:]


def unsigned(files: Files) -> Files:
    """A study without checksums, so that spoilt files are read and not only found to be altered."""
    about = json.loads(files["study.json"])
    del about["sha256"]
    return {**files, "study.json": json.dumps(about, indent=1).encode()}


ANY: Sequence[Spoiler] = (flip, cut, insert, repeat, replace, lines, words, words, words, words)


def spoil(
    rng: Random, files: Files, spoilers: Sequence[Spoiler] = ANY, often: Callable[[str], int] = lambda name: 1
) -> dict[str, bytes]:
    """Some of the files spoilt, one to three times, each as `often` as told; now and then one is missing or another."""
    found = dict(files)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        name = rng.choice([name for name in sorted(found) for _ in range(often(name))])
        found[name] = rng.choice(spoilers)(rng, found[name])
    if len(found) > 1 and rng.random() < 0.05:
        one, other = rng.sample(sorted(found), 2)
        found[one] = found[other]
        if rng.random() < 0.5:
            del found[other]
    return found
