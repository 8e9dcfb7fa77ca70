// Takes the templates and their data out of huggingface.js' packages/jinja/test/e2e.test.js:
//   node extract.mjs e2e.test.js >templates.json
import { readFileSync, writeFileSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const source = readFileSync(process.argv[2], "utf8");
const data = source.slice(source.indexOf("const EXAMPLE_CHAT"), source.indexOf("const TEST_CUSTOM_FORMATTING"));
const file = join(process.cwd(), "extracted.tmp.mjs");
writeFileSync(file, data + "\nexport { TEST_DEFAULT_TEMPLATES, TEST_CUSTOM_TEMPLATES };\n");
const { TEST_DEFAULT_TEMPLATES, TEST_CUSTOM_TEMPLATES } = await import(pathToFileURL(file));
unlinkSync(file);
const out = [];
for (const [name, t] of [...Object.entries(TEST_DEFAULT_TEMPLATES), ...Object.entries(TEST_CUSTOM_TEMPLATES)]) {
  out.push({ name, template: t.chat_template, data: t.data, target: t.target });
}
process.stdout.write(JSON.stringify(out, null, 1) + "\n");
