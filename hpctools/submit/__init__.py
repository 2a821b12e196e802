"""From a researcher's words to submitted jobs: intent -> plan -> batch script -> execute."""
