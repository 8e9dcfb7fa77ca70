package kernel

import "fmt"

// RowGroup is how many rows of B lie together: RepackRows begins at a multiple of it.
func (w *Packed) RowGroup() int {
	if w.set == portable {
		return 1
	}
	return w.set.panelWidth()
}

// RepackRows takes new contents of the rows from j on, given whole: a matrix may be laid out a few rows at a time. j is a
// multiple of RowGroup, and so is the number of rows, unless they are the last.
func (w *Packed) RepackRows(j int, b []float32) {
	if w.k == 0 {
		return
	}
	n, group := len(b)/w.k, w.RowGroup()
	if j < 0 || j%group != 0 || len(b)%w.k != 0 || j+n > w.n || n%group != 0 && j+n != w.n {
		panic(fmt.Sprintf("kernel.RepackRows: %d numbers at row %d of %d rows of %d, in groups of %d", len(b), j, w.n, w.k, group))
	}
	w.allocateRoom()
	if w.set == portable {
		if w.kind == halves {
			RoundBF16(w.half[j*w.k:j*w.k+len(b)], b)
		} else {
			copy(w.data[j*w.k:], b)
		}
		return
	}
	buf := w.packBuffers()
	for at := 0; at < n; at += group {
		rows := min(group, n-at)
		src := b[at*w.k : (at+rows)*w.k]
		if w.kind != floats {
			w.packHalf(buf, j+at, rows, func(dst []float32, row, from int) { copy(dst, src[row*w.k+from:]) })
			continue
		}
		w.set.packNT(w.data[(j+at)*w.k:], src, w.k, w.k, rows)
	}
}
