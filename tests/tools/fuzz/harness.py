"""One reader of files under a fuzzer that is guided by coverage: run.py starts this, a process for each.

    python tests/tools/fuzz/harness.py READER CORPUS [libFuzzer's options]

Whatever a file holds, it is read, or refused by a MinicaffeError of one line. Needs `pip install
'minicaffe[fuzz]'`.
"""

import os
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).resolve().parents[2]


def main() -> None:
    sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "tools")]
    os.environ["MINICAFFE_NUMBA"] = "0"  # readers compile nothing
    import atheris

    with atheris.instrument_imports(include=["minicaffe", "yaml"]):
        from fuzz.fuzzed import READERS, MinicaffeError, words

    name, corpus, *options = sys.argv[1:]
    os.makedirs(corpus, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.chdir(folder)
        reader = READERS[name](Path(folder))
        for i, seed in enumerate(reader.seeds):
            Path(corpus, f"seed-{i}").write_bytes(seed)
        dictionary = Path(folder, "words")
        dictionary.write_text("".join(map(entry, words(name))))

        def one(data: bytes) -> None:
            try:
                reader.use(data)
            except MinicaffeError as error:
                if not str(error).isprintable():
                    raise AssertionError(f"not one line: {str(error)[:300]!r}") from error

        atheris.Setup([sys.argv[0], f"-dict={dictionary}", *options, corpus], one)
        atheris.Fuzz()


def entry(word: bytes) -> str:
    """A word as a dictionary of libFuzzer's has it."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n'


if __name__ == "__main__":
    main()
