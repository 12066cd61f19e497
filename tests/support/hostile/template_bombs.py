"""Chat templates that ask for more than a conversation needs."""

from __future__ import annotations

NAMESPACE = "{% set n = namespace(s='x') %}"
BOMBS = {
    "a loop of 10^9": "{% for i in range(10**9) %}x{% endfor %}",
    "loops in loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops over text": "{% for i in 'x' * 99999 %}{% for j in 'x' * 99999 %}x{% endfor %}{% endfor %}",
    "a product": "{{ 'x' * 10**10 }}",
    "a product that is set": "{% set a = 'x' * 10**10 %}{{ a }}",
    "a list of 10^10": "{% set a = [0] * 10**10 %}{{ a }}",
    "a power": "{{ 10 ** 10 ** 10 }}",
    "a small power of powers": "{% set a = 9 ** 9 ** 9 %}x",
    "squares of squares": "{% set n = namespace(s=9) %}{% for i in range(60) %}{% set n.s = n.s * n.s %}"
    "{% endfor %}x",
    "doubling by ~": NAMESPACE + "{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}x",
    "doubling by +": NAMESPACE + "{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}x",
    "doubling by join": NAMESPACE + "{% for i in range(60) %}{% set n.s = [n.s, n.s] | join %}{% endfor %}x",
    "doubling by replace": NAMESPACE
    + "{% for i in range(60) %}{% set n.s = n.s.replace('x', 'xx') %}{% endfor %}x",
    "doubling by the filter": NAMESPACE
    + "{% for i in range(60) %}{% set n.s = n.s|replace('x', 'xx') %}{% endfor %}x",
    "doubling lists": "{% set n = namespace(s=[]) %}{% for i in range(60) %}{% set n.s = [n.s, n.s] %}"
    "{% endfor %}"
    "{{ n.s }}",
    "doubling lists, compared": "{% set n = namespace(s=[1], t=[1]) %}{% for i in range(60) %}"
    "{% set n.s = [n.s, n.s] %}"
    "{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.s == n.t }}",
    "doubling tuples and dicts": "{% set n = namespace(s={}) %}{% for i in range(60) %}"
    "{% set n.s = {'a': n.s, 'b': (n.s, n.s)} %}{% endfor %}{{ n.s|tojson }}",
    "a width": "{{ 'x'.center(10**10) }}",
    "a width by a filter": "{{ 'x'|center(10**10) }}",
    "a width in %": "{{ '%10000000000d' % 1 }}",
    "a width in a tuple": "{{ '%*d' % (10**10, 1) }}",
    "a width in format": "{{ '{:>9999999999}'.format(1) }}",
    "a width in a width": "{{ '{:{w}}'.format(1, w=10**10) }}",
    "a width in the filter": "{{ '%9999999999d'|format(1) }}",
    "zeros": "{{ '1'.zfill(10**10) }}",
    "tabs": "{{ ('\\t' * 9999).expandtabs(10**7) }}",
    "indents": "{{ ('x\\n' * 9999)|indent(10**7) }}",
    "indents of JSON": "{{ [1, [2, [3]]]|tojson(indent=10**10) }}",
    "bytes": "{{ (1).to_bytes(10**10, 'big') }}",
    "lorem ipsum": "{{ lipsum(n=10**6, max=10**6) }}",
    "a wrapped text": "{{ ('x ' * 9999)|wordwrap(1, true, 'y' * 10**6) }}",
    "joins": "{{ range(99999)|join('x' * 10**6) }}",
    "maps": "{{ range(99999)|map('center', 10**6)|join }}",
    "a macro that calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}"
    "{% endmacro %}{{ f(50) }}",
    "a loop that calls itself": "{% for x in [1,2] recursive %}{{ loop([1,2]) }}{% endfor %}",
    "a block that calls itself": "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
    "an include": "{% include 'x' %}",
    "an import": "{% import 'x' as y %}",
    "an extension": "{% extends 'x' %}",
    "deep brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "deep lists": "{{ " + "[" * 50_000 + " }}",
    "deep ifs": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "deep loops": "{% for i in [1] %}" * 50 + "{% endfor %}" * 50,
    "deep minus": "{{ " + "-" * 50_000 + "1 }}",
    "deep nots": "{{ " + "not " * 50_000 + "1 }}",
    "long sums": "{{ " + "1+" * 50_000 + "1 }}",
    "a megabyte of text": "x" * 10**6,
    "ten megabytes of names": "{{ a }}" * 10**6,
    "no text": "{{ messages.nosuch.nosuch }}",
    "classes": "{{ ''.__class__.__mro__ }}",
    "globals": "{{ cycler.__init__.__globals__ }}",
    "an attribute by name": "{{ messages|map(attribute='__class__')|list }}",
    "nothing": "",
    "an open tag": "{% for",
    "an exception": "{{ raise_exception('x' * 10**6) }}",
    "a division": "{{ 1 / 0 }}",
    "a slice": "{{ 'x'[::0] }}",
    "strftime": "{{ strftime_now('%' * 10**5) }}",
    "a number of digits": "{{ 9**9999 }}",
    "sorting": "{{ range(99999)|map('string')|sort|list|length * 'x' * 99999 }}",
    "sums in loops": "{% for i in range(99999) %}{{ range(99999)|sum }}{% endfor %}",
    "searches in loops": "{% set a = range(99999)|list %}{% for i in a %}{{ -1 in a }}{% endfor %}",
    "slices in loops": "{% set a = range(99999)|list %}{% for i in a %}{% set b = a[1:] %}{% endfor %}",
    "searches without loops": "{% set a = range(99999)|list %}" + "{{ -1 in a }}" * 9999,
}
