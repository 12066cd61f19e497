"""The book: chapters in three layers, glossary, methods, index and search, on the functions that train.

text/NAME/          a chapter: chapter.toml (claim, hook), intuition.md, mathematics.md, implementation.md,
                    checks.toml (questions); text/landing/ the first page; glossary.toml, sources.toml
computed/NAME.py    values() of a chapter: every number that its text may name, computed by the library
values.json         what they came to, written by `make docs`, so that a page needs no torch
inline, blocks      the grammar of the text
joins               where a paragraph leads: its derivation, and the line of source that computes it
tours, walks        the guided tour of a chapter (text/NAME/tour.toml); code told line by line (walks.toml)
chapters            texts, values and questions of a chapter together
glossary, places    terms and where they are linked; the index and what search looks through
numbers             every number of the prose, and whether it is computed, cited or neither
methods             the page of a row of the table
experiments, workshop   the runs of chapter 5, and their figures in the page
web                 the routes

A writer changes words without touching Python:
    {{gap:4}} a value with four decimals   [@ouyang2022] a source   [33,000](cite:ouyang2022) a cited number
    $x$ and $$ lines $$ equations          ::instrument bradley-terry   ::cell dpo   ::check gap-zero
    ::source postgrad.maths.kl.k3          ::row dpo   ::table memory   ::chart leash
    :::misconception What is said ... :::  ::timeline                   [^name] a join of joins.toml
    checks.toml: a question has choices, or kind = "number": an answer and known wrong ones by the names of
    values; no ::check is needed, it stands at the end of the mathematics
    ::workshop kl                          an experiment whose runs are started in the page
    ::walk nano                            a walk through source, of walks.toml
"""
