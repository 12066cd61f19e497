"""Rows to records, and the preference store.

A fault of a file is named by its line; nothing is dropped unsaid.

rows          JSONL and rows that were handed in           preferences   pairs, rankings, labelled answers
store, items, database, exchange   the store of labels     edits         the probes of an audit
sets          published data sets, from files or the hub
"""
