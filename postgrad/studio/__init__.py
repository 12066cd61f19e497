"""The studio: one local web app on the functions that train. A book first, a dashboard second.

app       create_app: gathers the routes of every area, the guard around them, errors as pages
security  who may ask: token, Host, Origin, the header on every write; and the headers of every answer
pages     templates to responses, forms to dicts, numbers to text
svg       scales, ticks and paths of the small charts
home about instruments/ runs live launch label lab exercises   the areas: each has `routes`
export    the same pages as plain files

HTML and SVG are made by Jinja with autoescape, never by f-strings: prompts and completions are untrusted
text. torch is imported inside functions, so that the server is up at once.
"""
