package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weir-rl/weir/gpu/hf/tokenizer"
)

func newTokenizeCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tokenize folder [text]", Short: "Turn text into a model folder's token ids, and back", Args: cobra.RangeArgs(1, 2),
		Long: `Tokenize writes the token ids of a text, as the tokenizer.json of a model folder has them. Without a text it reads a
JSON string a line from standard input and writes a JSON array of token ids a line. Control tokens that the text spells become their ids; with --untrusted the
same characters stay text, as in what a tool says to an agent. --decode goes the other way. A line that is neither
ends the command and is named by its number; what stands before it is written.`,
		Example: "  weir tokenize Qwen2.5-0.5B 'Hello, world'\n  echo '\"Hello, world\"' | weir tokenize Qwen2.5-0.5B\n  echo '[9707, 11, 1879]' | weir tokenize --decode Qwen2.5-0.5B",
	}
	decode := cmd.Flags().Bool("decode", false, "ids in, text out; bytes that are no UTF-8 come out as U+FFFD")
	untrusted := cmd.Flags().Bool("untrusted", false, "what control tokens are spelled with is text")
	wrap := cmd.Flags().Bool("wrap", false, "add what the tokenizer begins and ends a text with")
	cmd.MarkFlagsMutuallyExclusive("decode", "untrusted")
	cmd.MarkFlagsMutuallyExclusive("decode", "wrap")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		codec, err := tokenizer.OpenFolder(args[0])
		if err != nil {
			return err
		}
		each := func(line []byte) ([]byte, error) {
			text, err := jsonString(line)
			if err != nil {
				return nil, err
			}
			encode := codec.Encode
			if *untrusted {
				encode = codec.EncodeText
			}
			ids := encode(text)
			if *wrap {
				ids = codec.Wrap(ids)
			}
			return idList(ids), nil
		}
		if *decode {
			each = func(line []byte) ([]byte, error) {
				ids, err := tokenIDs(line, codec.Size())
				if err != nil {
					return nil, err
				}
				var b bytes.Buffer
				err = writeJSON(&b, tokenizer.DecodeWhole(codec, ids))
				return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
			}
		}
		in := cmd.InOrStdin()
		if len(args) == 2 {
			line := args[1]
			if !*decode {
				quoted, err := json.Marshal(line)
				if err != nil {
					return fmt.Errorf("read the text: %w", err)
				}
				line = string(quoted)
			}
			in = strings.NewReader(line)
		}
		return eachLine(in, a.out, each)
	}
	return cmd
}

// maxLine bounds a line of a command's input, in bytes.
const maxLine = 64 << 20

// eachLine writes the result of fn for each line that is not blank, a line each. Results are flushed before a read may wait, so that a
// program can ask line by line. The fault of a line has its number.
func eachLine(in io.Reader, out io.Writer, fn func(line []byte) ([]byte, error)) error {
	w := bufio.NewWriter(out)
	lines := bufio.NewScanner(flushing{in, w})
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		answer, err := fn(line)
		if err != nil {
			return errors.Join(w.Flush(), fmt.Errorf("line %d: %w", n, err))
		}
		_, _ = w.Write(answer) // Flush tells
		_ = w.WriteByte('\n')
	}
	err := lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = fmt.Errorf("longer than %d bytes", maxLine)
	}
	if err != nil {
		err = fmt.Errorf("line %d: %w", n+1, err)
	}
	return errors.Join(w.Flush(), err)
}

// flushing is a reader before each read of which a writer is flushed.
type flushing struct {
	io.Reader
	w *bufio.Writer
}

// Read reads on.
func (f flushing) Read(p []byte) (int, error) {
	if err := f.w.Flush(); err != nil {
		return 0, err
	}
	return f.Reader.Read(p)
}

// jsonString reads a JSON string. Text in which encoding/json would put U+FFFD is refused: bytes that are no UTF-8, and half of a surrogate
// pair.
func jsonString(line []byte) (string, error) {
	var text *string
	if !utf8.Valid(line) {
		return "", errors.New("not UTF-8 text")
	}
	if err := json.Unmarshal(line, &text); err != nil || text == nil {
		return "", fmt.Errorf("%.40s: want a JSON string, such as \"Hello\"", line)
	}
	if half := halfSurrogate(line); half != "" {
		return "", fmt.Errorf("%s is half of a surrogate pair, which is no character", half)
	}
	return *text, nil
}

// halfSurrogate is the first escape of a JSON string that is half of a pair; "" without one.
func halfSurrogate(text []byte) string {
	unit := func(at int) uint64 {
		if at+6 > len(text) || text[at] != '\\' || text[at+1] != 'u' {
			return 0
		}
		n, _ := strconv.ParseUint(string(text[at+2:at+6]), 16, 16) // it was read as JSON
		return n
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		switch n := unit(i); {
		case n>>10 == 0xd800>>10 && unit(i+6)>>10 == 0xdc00>>10:
			i += 11
		case n>>11 == 0xd800>>11:
			return string(text[i : i+6])
		default:
			i++
		}
	}
	return ""
}

// tokenIDs reads a JSON array of ids below size.
func tokenIDs(line []byte, size int) ([]int32, error) {
	var ids []int32
	if err := json.Unmarshal(line, &ids); err != nil || ids == nil {
		return nil, fmt.Errorf("%.40s: want a JSON array of token ids, such as [1, 2]", line)
	}
	for _, id := range ids {
		if id < 0 || int(id) >= size {
			return nil, fmt.Errorf("id %d: the tokenizer's are 0 to %d", id, size-1)
		}
	}
	return ids, nil
}

// idList is a JSON array of ids.
func idList(ids []int32) []byte {
	b := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}
