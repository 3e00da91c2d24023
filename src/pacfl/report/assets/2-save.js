// Figures as files. Each has an SVG; a PNG is drawn from it.

const PNG_SCALE = 2;

function download(name, kind, content) {
  const url = URL.createObjectURL(new Blob([content], { type: kind }));
  element("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// Fields with commas, quotes or line breaks are quoted; a formula from a client's name must not run in a spreadsheet.
function csv(rows) {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const field = (value) => {
    if (value == null || Number.isNaN(value)) return "";
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [columns.join(","), ...rows.map((row) => columns.map((c) => field(row[c])).join(","))].join("\r\n") + "\r\n";
}

async function png(svgText) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText)}`;
  await image.decode();
  const canvas = element("canvas", { width: PNG_SCALE * image.width, height: PNG_SCALE * image.height });
  const pen = canvas.getContext("2d");
  pen.fillStyle = "white"; // a saved picture has no page behind it, and its text is black
  pen.fillRect(0, 0, canvas.width, canvas.height);
  pen.drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

function saveButtons(box, name, svgText, tables) {
  const button = (text, action) => {
    const made = element("button", { type: "button", "data-save": text }, text);
    made.onclick = action;
    return made;
  };
  box.replaceChildren(
    button("SVG", async () => download(`${name}.svg`, "image/svg+xml", await svgText())),
    button("PNG", async () => download(`${name}.png`, "image/png", await png(await svgText()))),
    ...Object.entries(tables).map(([what, rows]) =>
      button(what, () =>
        download(`${what === "CSV" ? name : what.replace(/^CSV of /, "")}.csv`, "text/csv", csv(rows())),
      ),
    ),
  );
}
