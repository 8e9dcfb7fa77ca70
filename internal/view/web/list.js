import { h, put } from './dom.js';

export const pageRows = 200;
// Browsers do not scroll further than some ten million pixels: beyond that a pixel stands for more than one.
const mostPixels = 8e6;

const narrow = matchMedia('(max-width: 720px)');

// rowHeight is that of style.css: a row is two lines on a telephone.
const rowHeight = () => (narrow.matches ? 58 : 32);

// List is a long list of which only the rows in sight are drawn.
export class List {
  /**
   * @param {object} options
   * @param {(offset: number) => Promise<any>} options.read asks for a page
   * @param {(row: any, selected: boolean) => any} options.drawRow makes the line of a row
   * @param {(row: any) => string} options.link the address that a row leads to
   * @param {(total: number) => void} options.counted is called with the number of rows
   * @param {number} options.at the row that the keys are at
   */
  constructor({ read, drawRow, link, counted, at }) {
    this.read = read;
    this.drawRow = drawRow;
    this.rowHeight = rowHeight();
    this.link = link;
    this.counted = counted;
    this.at = at; // the row that the keys are at
    this.total = 0;
    this.generation = -1; // of the record that the pages are of
    /** @type {Map<number, any[]>} */
    this.pages = new Map();
    this.asked = new Set();
    this.spacer = h('div', { class: 'spacer' });
    this.body = h('div', { class: 'body', tabindex: 0, role: 'listbox', 'aria-label': 'rollouts' }, this.spacer);
  }

  // begin reads the first page, and draws when rows come into sight.
  async begin() {
    this.body.addEventListener('scroll', () => requestAnimationFrame(() => this.draw()));
    new ResizeObserver(() => {
      this.rowHeight = rowHeight();
      this.fit();
      this.draw();
    }).observe(this.body);
    await this.load(0);
    this.draw();
  }

  // refresh reads the first page again, and forgets the others where the record has changed.
  async refresh() {
    const was = this.generation;
    await this.load(0);
    if (this.generation === was) return;
    const first = this.pages.get(0) || [];
    this.pages.clear();
    this.pages.set(0, first);
    this.draw();
  }

  async load(page) {
    const got = await this.read(page * pageRows);
    if (got.generation !== this.generation && this.generation >= 0 && page > 0) this.pages.clear();
    this.generation = got.generation;
    this.pages.set(page, got.rows);
    this.total = got.total;
    this.fit();
    this.counted(this.total);
  }

  // fit gives the list the height of all its rows.
  fit() {
    this.spacer.style.height = Math.min(this.total * this.rowHeight, mostPixels) + 'px';
  }

  // ask loads a page that came into sight, once at a time.
  ask(page) {
    if (this.asked.has(page)) return;
    this.asked.add(page);
    this.load(page).then(
      () => {
        this.asked.delete(page);
        this.draw();
      },
      () => this.asked.delete(page),
    );
  }

  rowAt(i) {
    return (this.pages.get(Math.floor(i / pageRows)) || [])[i % pageRows];
  }

  // scale is how many pixels of the list a pixel of the scroll bar stands for.
  scale() {
    return Math.max(1, (this.total * this.rowHeight) / mostPixels);
  }

  draw() {
    const top = this.body.scrollTop * this.scale();
    const first = Math.max(0, Math.floor(top / this.rowHeight) - 4);
    const last = Math.min(this.total, first + Math.ceil(this.body.clientHeight / this.rowHeight) + 8);
    const rows = [];
    for (let i = first; i < last; i++) {
      const r = this.rowAt(i);
      if (!r) this.ask(Math.floor(i / pageRows));
      const line = r ? this.drawRow(r, i === this.at) : h('div', { class: 'row dim' }, h('span', null, '…'));
      line.style.top = i * this.rowHeight - top + this.body.scrollTop + 'px';
      rows.push(line);
    }
    put(this.spacer, rows);
  }

  move(by) {
    this.at = Math.max(0, Math.min(this.total - 1, this.at + by));
    const want = (this.at * this.rowHeight) / this.scale();
    const { scrollTop, clientHeight } = this.body;
    if (want < scrollTop) this.body.scrollTop = want;
    else if (want + this.rowHeight > scrollTop + clientHeight)
      this.body.scrollTop = want + this.rowHeight - clientHeight;
    this.draw();
  }

  open() {
    const r = this.rowAt(this.at);
    if (r) location.hash = this.link(r);
  }

  keys() {
    return {
      j: () => this.move(1),
      k: () => this.move(-1),
      ArrowDown: () => this.move(1),
      ArrowUp: () => this.move(-1),
      PageDown: () => this.move(20),
      PageUp: () => this.move(-20),
      End: () => this.move(this.total),
      Home: () => this.move(-this.total),
      Enter: () => this.open(),
    };
  }
}
