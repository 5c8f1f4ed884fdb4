"""Refuses unclear phrases in comments, documents and messages (docs/style.md, Language).

    .ci/phrases.py [FILE...]        # without arguments: all tracked text files

Prints FILE:LINE, the phrase and what to write instead; exit code 1 if there are any.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# (pattern, advice). A pattern is matched in one paragraph at a time, with line ends as spaces.
PHRASES: list[tuple[str, str]] = [
    (r"(?:^|[.!?:;] )(?:Who|What|Whoever|Whatever)\b(?![^.?!]*\?)", "name the subject: a noun"),
    (
        r"(?:^|[.!?] )(?:Of|That of|Those of|The same of) [^,.;]{0,40}[.;:](?: |$)",
        "write a sentence",
    ),
    (r"\bin vain\b", "'without success', or say what failed"),
    (r"\bwould be right\b", "say what the rule is"),
    (r"\bwill do\b(?! (?:so|that|it)\b)", "say what is required"),
    (r"\bto begin with\b", "delete it, or 'first'"),
    (r"\bmore or less\b", "say how much"),
    (r"\bso to speak\b|\bas it were\b", "delete it"),
    (r"\bdawdles?\b|\boccup(?:y|ies) us\b", "say which time-out or limit applies"),
    (r"\blast words\b", "'final NAK or CLOSE'"),
    (r"\bstrangers?\b(?! peer)", "'unbound connection' or 'unauthenticated peer'"),
    (r"\bnobody (?:has|knows|wants|takes|asks)\b", "name the thing that is absent"),
    (r"\bone's own\b|\bthe own (?:host|one|side|end)\b", "'local'"),
    (r"\bhow(?:ever)? long this one\b", "name the thing"),
    (r"\bwherever (?:it|that) (?:is|may be)\b", "name the place"),
    (r"(?<!there )\b(?:is|are) none\b", "'does not count' or 'there is no ...'"),
    (r"\b(?:nobody|somebody|everybody|whoever)\b", "name the process, host, QP or person"),
    (r"\ball the same\b", "'anyway', or delete it"),
    (r"\bfor ever\b", "'without a limit', or name the limit"),
    (r"\bshown the door\b", "'refused'"),
    (r"\blets? go of\b", "'releases' or 'frees'"),
    (r"\bdial(?:s|ed|led|ling)?\b(?![.(_])", "'connect'"),
    (r"\bhangs? on\b", "'depends on'"),
    (r"\bnone such\b", "'no such ...' with its noun"),
    (r"\bwithout a word\b", "'without a message' or 'without an error'"),
    (r"\bsays so\b", "say what is reported"),
    (r"(?:^|[.!?] )(?:Those|That of|Whose|Whom) [a-z]", "name the subject: a noun"),
    (r"\bone step to\b", "say what follows"),
    (r"\bgoes by the name\b", "'is named'"),
]

COMMENT = re.compile(
    r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)', re.S
)
PYTHON = re.compile(
    r'"""(?P<doc>.*?)"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#(?P<line>[^\n]*)', re.S
)
FENCE = re.compile(r"^```.*?^```", re.S | re.M)
LEAD = re.compile(r"^[ \t]*(?:\*(?!\*)|#+|>|[-|]|\d+\.)?[ \t]*", re.M)
SUFFIXES = {".c", ".h", ".py", ".pyx", ".pxd", ".pyi", ".md", ".sh", ".service", ".toml"}


def comments(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """The comments of a source file, each with its offset; consecutive line comments are one."""
    run_at, run, run_end = 0, "", -1
    for match in pattern.finditer(text):
        groups = match.groupdict()
        if groups.get("line") is not None:
            if run and text[run_end : match.start()].strip() == "":
                run += "\n" + groups["line"]
            else:
                if run:
                    yield run_at, run
                run_at, run = match.start(), groups["line"]
            run_end = match.end()
            continue
        body = groups.get("block") or groups.get("doc")
        if body:
            yield match.start(), body
    if run:
        yield run_at, run


def prose(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """The text of a file that a person reads, as (offset, text)."""
    if path.suffix in (".c", ".h"):
        yield from comments(text, COMMENT)
    elif path.suffix == ".md":
        yield 0, FENCE.sub(lambda m: "\n" * m.group(0).count("\n"), text)
    else:
        yield from comments(text, PYTHON)


def paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Paragraphs, list items and table cells, each with its line number from 0."""
    line = 0
    for block in re.split(r"(\n[ \t*#]*\n|\n(?=[ \t]*(?:[-*|]|\d+\.) )|\|)", text):
        if block.strip(" \t\n*#|"):
            flat = " ".join(LEAD.sub("", block).split())
            yield line + len(block[: len(block) - len(block.lstrip())].splitlines()[1:]), flat
        line += block.count("\n")


def findings(path: Path) -> Iterator[str]:
    """One line of text for each phrase found in the file."""
    text = path.read_text(encoding="utf-8")
    for at, body in prose(path, text):
        first = text.count("\n", 0, at) + 1
        for line, paragraph in paragraphs(body):
            for pattern, advice in PHRASES:
                match = re.search(pattern, paragraph)
                if match:
                    shown = paragraph[max(0, match.start() - 20) : match.end() + 30]
                    yield f"{path}:{first + line}: '...{shown}...': {advice}"


def files(arguments: list[str]) -> list[Path]:
    """The files to read: the arguments, or all tracked ones but this list itself."""
    if arguments:
        return [Path(argument) for argument in arguments]
    listed = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True)
    own = ("phrases.py", "test_phrases.py")
    return [
        p for p in map(Path, listed.stdout.split()) if p.suffix in SUFFIXES and p.name not in own
    ]


def main() -> int:
    """Exit code 1 if any file holds a phrase of the list."""
    found = [line for path in files(sys.argv[1:]) if path.is_file() for line in findings(path)]
    print(*found, sep="\n", end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
