"""Asks the real libpam: reads cases from stdin, each {"files": {name: text}, "ask": [[service, user,
phase]]}; prints the codes of each as a JSON list. Run in a mount namespace with a /etc/pam.d of its own."""

import json
import sys
from pathlib import Path

from pam import trial

answers = []
for case in json.load(sys.stdin):
    for name, text in case["files"].items():
        Path("/etc/pam.d", name).write_text(text)
    answers.append([trial.attempt(*question).code for question in case["ask"]])
print(json.dumps(answers))
