package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	sqlite3 "github.com/ncruces/go-sqlite3"
)

// maxCell bounds a value that is shown, in bytes.
const maxCell = 500

// runQuery runs a statement and writes its rows: the columns' names, a line for each row, and how many there are.
func (c Config) runQuery(conn *sqlite3.Conn, text string) (string, error) {
	stmt, tail, err := conn.Prepare(text)
	if err != nil {
		return "", err
	}
	if stmt == nil {
		return "", errors.New("there is no statement")
	}
	defer stmt.Close()
	if more, _, err := conn.Prepare(tail); more != nil || err != nil {
		if more != nil {
			_ = more.Close()
		}
		return "", errors.New("there is more than one statement: send them one by one")
	}
	var out strings.Builder
	cells := make([]string, stmt.ColumnCount())
	for i := range cells {
		cells[i] = stmt.ColumnName(i)
	}
	out.WriteString(strings.Join(cells, " | ") + "\n")
	rows, more := 0, false
	for stmt.Step() {
		for i := range cells {
			cells[i] = cellText(stmt, i)
		}
		line := strings.Join(cells, " | ") + "\n"
		if more = rows == c.MaxRows || out.Len()+len(line) > c.OutputBytes; more {
			break
		}
		out.WriteString(line)
		rows++
	}
	if err := stmt.Err(); err != nil {
		return "", err
	}
	switch {
	case more:
		fmt.Fprintf(&out, "(the first %s; there are more)", countRows(rows))
	default:
		fmt.Fprintf(&out, "(%s)", countRows(rows))
	}
	return out.String(), nil
}

// countRows says how many rows there are.
func countRows(rows int) string {
	if rows == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", rows)
}

// cellText is a value on a single line.
func cellText(stmt *sqlite3.Stmt, column int) string {
	switch stmt.ColumnType(column) {
	case sqlite3.NULL:
		return "NULL"
	case sqlite3.FLOAT:
		return strconv.FormatFloat(stmt.ColumnFloat(column), 'g', 15, 64)
	case sqlite3.BLOB:
		raw := stmt.ColumnRawBlob(column)
		if len(raw) > maxCell/2 {
			return fmt.Sprintf("x'%s...' (%d bytes)", hex.EncodeToString(raw[:16]), len(raw))
		}
		return "x'" + hex.EncodeToString(raw) + "'"
	}
	text := strings.NewReplacer("\r", " ", "\n", " ").Replace(stmt.ColumnText(column))
	if len(text) <= maxCell {
		return text
	}
	end := maxCell
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return fmt.Sprintf("%s... (%d bytes)", text[:end], len(text))
}

// explainError returns an error as the agent is told it.
func (c Config) explainError(ctx context.Context, err error) error {
	var fault *sqlite3.Error
	switch {
	case errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil:
		return fmt.Errorf("the query ran for more than %s", c.QueryTimeout)
	case errors.Is(err, sqlite3.AUTH):
		return errors.New("the database can only be read: SELECT, and PRAGMA table_info and its like, are allowed")
	case errors.As(err, &fault):
		return errors.New(strings.TrimPrefix(fault.Error(), "sqlite3: "))
	}
	return err
}
