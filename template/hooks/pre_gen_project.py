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
    found = []
    for name, answer in answers.items():
        choices, rule = questions.get(name), questions["_rules"].get(name)
        if isinstance(choices, list) and answer not in choices:
            found.append(f"{name} can't be '{answer}': choose {' or '.join(choices)}.")
        if rule and not re.fullmatch(rule["pattern"], answer):
            found.append(f"{name} must {rule['must']}; it is '{answer}'.")
        for why, words in questions["_reserved"].items() if rule else ():
            if answer.lower() in words:
                found.append(f"{name} can't be '{answer}', as {why}: choose another word.")
    return found


if __name__ == "__main__":
    asked = json.loads(r"""{{ _cookiecutter | tojson }}""")
    given = json.loads(r"""{{ cookiecutter | tojson }}""")
    if found := problems({name: given[name] for name in asked}, {**given, **asked}):
        sys.exit("\n".join(found))
