"""Refuses answers that would make a bundle that can't be deployed, and says all of them at once."""

import json
import re
import sys
from typing import Any


def problems(answers: dict[str, str], questions: dict[str, Any]) -> list[str]:
    """Say of each answer that can't be used what is wrong with it.

    Args:
        answers: What was answered, by the question's name.
        questions: The content of cookiecutter.json.
    """
    faults = []
    for name, answer in answers.items():
        choices, rule = questions.get(name), questions["_rules"].get(name)
        if isinstance(choices, list) and answer not in choices:
            faults.append(f"{name} can't be '{answer}': choose {' or '.join(choices)}.")
        if rule and not re.fullmatch(rule["pattern"], answer):
            faults.append(f"{name} must {rule['must']}; it is '{answer}'.")
        for reserved in questions["_reserved"]:
            if name in reserved["questions"] and answer.lower() in reserved["words"]:
                faults.append(f"{name} can't be '{answer}', as {reserved['why']}: choose another word.")
    for refused in questions["_refused"]:
        if refused["when"].items() <= answers.items():
            faults.append(f"{refused['why']}.")
    return faults


if __name__ == "__main__":
    order = json.loads(r"""{{ cookiecutter | list | tojson }}""")
    given = json.loads(r"""{{ cookiecutter | tojson }}""")
    asked = json.loads(r"""{{ _cookiecutter | tojson }}""")
    if faults := problems({name: given[name] for name in order if name in asked}, {**given, **asked}):
        sys.exit("\n".join(faults))
