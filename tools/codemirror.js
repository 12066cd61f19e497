// What studio/static/vendor/codemirror/codemirror.js is made from. Once, in a folder of its own:
//   npm install codemirror@6.0.2 @codemirror/lang-python@6.2.1 esbuild@0.28.2
//   npx esbuild codemirror.js --bundle --format=esm --minify --target=es2022 --legal-comments=none --outfile=out/codemirror.js
// codemirror stays at 6.0.x: the registry's newest 6.65 is version 5 under another number.
// It brought in @codemirror/view 6.43.15, state 6.7.6, language 6.13.1, commands 6.11.1, autocomplete 6.20.4, @lezer/common
// 1.5.5, highlight 1.2.5, lr 1.4.12, python 1.1.19, style-mod 4.1.4, w3c-keyname 2.2.8, crelt 1.0.7,
// @marijn/find-cluster-break 1.0.4, all under the same MIT licence.
export { EditorState } from "@codemirror/state";
export { EditorView, keymap, lineNumbers, drawSelection, highlightSpecialChars } from "@codemirror/view";
export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { bracketMatching, HighlightStyle, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
export { python } from "@codemirror/lang-python";
export { tags } from "@lezer/highlight";
