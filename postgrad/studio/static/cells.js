// <py-cell>: a textarea of Python becomes an editor. What is typed goes back into the textarea, which the form sends; the form
// hears "edited" when the typing pauses. The editor lives in a shadow root, so its styles need no exception from the policy.
import {
  EditorState, EditorView, HighlightStyle, bracketMatching, closeBrackets, closeBracketsKeymap, defaultKeymap, drawSelection,
  highlightSpecialChars, history, historyKeymap, indentOnInput, indentUnit, indentWithTab, keymap, lineNumbers, python,
  syntaxHighlighting, tags,
} from "./vendor/codemirror/codemirror.js";

const PAUSE = 350;  // ms

const theme = EditorView.theme({
  "&": { color: "var(--ink)", backgroundColor: "var(--card)", fontSize: "13.5px", border: "1px solid var(--rule)", borderTop: "3px solid var(--accent)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "21px", fontFeatureSettings: '"calt" 0' },
  ".cm-content": { padding: "12px 0", caretColor: "var(--ink)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--soft)", border: "0", paddingLeft: "6px" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused .cm-selectionBackground, .cm-selectionBackground, ::selection": { backgroundColor: "color-mix(in srgb, var(--accent) 25%, transparent) !important" },
  ".cm-matchingBracket": { backgroundColor: "transparent !important", outline: "1px solid var(--ghost)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.definitionKeyword, tags.controlKeyword], color: "var(--accent)" },
  { tag: [tags.string, tags.docString, tags.comment], color: "var(--soft)" },
  { tag: tags.function(tags.definition(tags.variableName)), fontWeight: "600" },
]);

/** Typing over a selection of several lines, done by the editor: the browser would style the text inline, which the policy forbids. */
function overLines(event, view) {
  const { from, to } = view.state.selection.main, lines = view.state.doc;
  if (event.inputType !== "insertText" || lines.lineAt(from).number === lines.lineAt(to).number) return false;
  event.preventDefault();
  view.dispatch(view.state.replaceSelection(event.data));
  return true;
}

class PyCell extends HTMLElement {
  connectedCallback() {
    if (this.editor) return;
    this.text = this.querySelector("textarea");
    this.original = this.text.defaultValue;
    this.key = `cell:${this.dataset.cell}`;
    const closed = this.hasAttribute("data-closed");
    const kept = closed ? null : this.kept();
    if (kept !== null) this.text.value = kept;
    this.text.hidden = true;
    const root = this.attachShadow({ mode: "open" });
    const place = document.createElement("div");
    root.append(place, document.createElement("slot"));
    this.editor = new EditorView({
      parent: place, root,
      state: EditorState.create({
        doc: this.text.value,
        extensions: [
          lineNumbers(), highlightSpecialChars(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(),
          indentUnit.of("    "), EditorState.tabSize.of(4), EditorView.lineWrapping, python(), syntaxHighlighting(colours), theme,
          EditorState.readOnly.of(closed), EditorView.contentAttributes.of({ "aria-label": this.querySelector("label").textContent }),
          keymap.of([{ key: "Mod-Enter", run: () => (this.form.requestSubmit(), true) }, indentWithTab,
            ...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap]),
          EditorView.domEventHandlers({ beforeinput: overLines }),
          EditorView.updateListener.of((update) => { if (update.docChanged) this.typed(); }),
        ],
      }),
    });
    this.form = this.closest("form");
    this.form.querySelector("[data-restore]")?.addEventListener("click", () => this.restore());
    this.mark();
    if (!closed && !studio.exported) this.first();  // a page without a server loads Python when somebody runs or edits
  }

  /** The first run, as soon as htmx listens to the form. */
  first() {
    if (this.form.hasAttribute("data-htmx-powered")) this.run();
    else document.addEventListener("htmx:after:init", () => this.first(), { once: true });
  }

  /** What was typed here before, unless the library's own text has changed since. */
  kept() {
    const said = JSON.parse(sessionStorage.getItem(this.key) || "null");
    return said && said.original === this.original ? said.text : null;
  }

  typed() {
    this.text.value = this.editor.state.doc.toString();
    if (this.text.value === this.original) sessionStorage.removeItem(this.key);
    else sessionStorage.setItem(this.key, JSON.stringify({ original: this.original, text: this.text.value }));
    this.mark();
    clearTimeout(this.later);
    this.later = setTimeout(() => this.run(), PAUSE);
  }

  run() {
    this.form.dispatchEvent(new Event("edited"));
  }

  mark() {
    const edited = this.text.value !== this.original;
    this.form.querySelector("[data-restore]")?.toggleAttribute("disabled", !edited);
    this.form.querySelector("[data-mark]")?.toggleAttribute("hidden", !edited);
  }

  restore() {
    this.editor.dispatch({ changes: { from: 0, to: this.editor.state.doc.length, insert: this.original } });
    this.editor.focus();
  }
}
customElements.define("py-cell", PyCell);
