"""Rows to records, tasks, environments and the preference store.

rows      JSONL files and row objects                   preferences   pairs, rankings, labelled answers
sets      published data sets, from files or the hub    store         labels; exchange: import and export
tasks     prompts, verifiers, gold replies              environments  multi-turn episodes
"""
