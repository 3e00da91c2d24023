// Tables as files, for a paper or a page: Markdown, and LaTeX for the package booktabs. The same rules as `pacfl table`.

const LATEX = {
  ...Object.fromEntries([..."&%$#_{}"].map((character) => [character, `\\${character}`])),
  "\\": "\\textbackslash{}",
  "~": "\\textasciitilde{}",
  "^": "\\textasciicircum{}",
  "±": "$\\pm$",
  "≈": "$\\approx$",
  "★": "$\\star$",
  "✕": "$\\times$",
  β: "$\\beta$",
  "<": "\\textless{}",
  ">": "\\textgreater{}",
};
const escaped = (text) => [...text].map((character) => LATEX[character] ?? character).join("");

// Headings and rows of text; a table without headings, as that of the evidence, has empty ones.
function gridOf(table) {
  const text = (row) => [...row.cells].map((cell) => cell.textContent.replace(/\s+/g, " ").trim());
  const rows = [...table.tBodies[0].rows].map(text),
    head = table.tHead?.rows[0];
  return [head ? text(head) : (rows[0] ?? []).map(() => ""), ...rows];
}

function asMarkdown(table) {
  const [head, ...rows] = gridOf(table).map((row) => `| ${row.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`);
  return [head, `${"|---".repeat(gridOf(table)[0].length)}|`, ...rows].join("\n") + "\n";
}

function asLatex(table) {
  const [head, ...rows] = gridOf(table);
  const bold = [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.classList.contains("best")));
  const body = rows.map((row, i) => row.map((cell, j) => (bold[i][j] ? `\\textbf{${escaped(cell)}}` : escaped(cell))));
  const lines = [head.map(escaped), ...body].map((row) => `    ${row.join(" & ")} \\\\`);
  return [
    "% \\usepackage{booktabs}",
    "\\begin{table}",
    "  \\centering",
    `  \\begin{tabular}{l${"r".repeat(Math.max(0, head.length - 1))}}`,
    "    \\toprule",
    lines[0],
    "    \\midrule",
    ...lines.slice(1),
    "    \\bottomrule",
    "  \\end{tabular}",
    "\\end{table}",
    "",
  ].join("\n");
}

// Buttons below each table of the report that has none yet. A table is read when it is saved: it may have been redrawn.
function saveTables() {
  for (const table of document.querySelectorAll("#report table")) {
    if (table.dataset.saved) continue;
    table.dataset.saved = "below";
    const name = `pacfl-${table.id || table.className}`;
    const button = (what, make, end, kind) => {
      const made = element("button", { type: "button", "data-save-table": what, "aria-label": `${what} of ${name}` }, what);
      made.onclick = () => download(`${name}.${end}`, kind, make(table));
      return made;
    };
    (table.closest(".wide") ?? table).after(
      element(
        "div",
        { class: "save" },
        button("Markdown", asMarkdown, "md", "text/markdown"),
        button("LaTeX", asLatex, "tex", "application/x-tex"),
      ),
    );
  }
}
