"""JUnit XML: one test case a clause, its id as the stable name."""

from typing import Any
from xml.etree import ElementTree as xml

from .clauses import CLAUSES
from .verdicts import Outcome, Profile, Verdict, outcome


def printable(text: str) -> str:
    """Text without the characters that XML 1.0 cannot hold."""
    return "".join(
        c if c in "\t\n\r" or " " <= c <= "\ud7ff" or "\ue000" <= c <= "\ufffd" or c > "\uffff" else "�" for c in text
    )


def junit(lines: list[dict[str, Any]]) -> str:
    """The report's lines as JUnit XML."""
    profile = Profile(lines[0]["profile"])
    verdicts = [line for line in lines if line["type"] == "verdict"]
    suite = xml.Element("testsuite", name="specqual.conformance", tests=str(len(verdicts)))
    totals = {"failures": 0, "errors": 0, "skipped": 0}
    for line in verdicts:
        clause = CLAUSES[line["clause"]]
        case = xml.SubElement(
            suite, "testcase", classname=f"specqual.{clause.chapter}", name=clause.id, time=str(line["seconds"])
        )
        verdict = Verdict(line["verdict"])
        shown = outcome(verdict, clause.level, profile)
        text = printable(f"{verdict}: {line['detail']}")
        if verdict is Verdict.ERROR:
            totals["errors"] += 1
            xml.SubElement(case, "error", message=text).text = printable(line["evidence"]["notes"].get("traceback", ""))
        elif shown is Outcome.FAILED:
            totals["failures"] += 1
            xml.SubElement(case, "failure", message=text).text = printable(line["proof"])
        elif shown is Outcome.SKIPPED:
            totals["skipped"] += 1
            xml.SubElement(case, "skipped", message=text)
        else:
            xml.SubElement(case, "system-out").text = text
    for name, count in totals.items():
        suite.set(name, str(count))
    xml.indent(suite)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
