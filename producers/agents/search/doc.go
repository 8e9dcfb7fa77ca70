// Package search is an agent that answers questions by searching, in the tag format of Search-R1 (Jin et
// al., 2025). The policy writes
//
//	<search> query </search>
//
// and is shown <info> what was found </info>, as often as it likes, and ends with
//
//	<answer> answer </answer>
//
// Further tools are called between tags of their own names. Whatever it writes before an opening tag is its own thought. The agent reads and
// writes token ids: sampled tokens stay as they are, and
// only the tool's words are tokenized.
package search
