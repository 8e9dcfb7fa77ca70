package fakeserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// Parse reads a command line: the kind, then what the real server's takes. Arguments that a fake has no use for are passed over,
// but an unknown word is not.
func Parse(args []string) (kind Kind, address string, o Options, err error) {
	if len(args) == 0 || Kind(args[0]) != VLLM && Kind(args[0]) != SGLang {
		return "", "", o, errors.New("want vllm or sglang first")
	}
	kind = Kind(args[0])
	o.Processed, o.NoDefaults = kind == SGLang, kind == SGLang // its route of calls reads no defaults
	host, port := "0.0.0.0", "8000"
	for rest := args[1:]; len(rest) > 0; {
		word, value := rest[0], ""
		rest = rest[1:]
		if strings.HasPrefix(word, "--") && len(rest) > 0 && !strings.HasPrefix(rest[0], "--") {
			value, rest = rest[0], rest[1:]
		}
		switch word {
		case "serve":
		case "--model-path":
			o.Dir = value
		case "--host":
			host = value
		case "--port":
			port = value
		case "--api-key":
			o.APIKey = value
		case "--admin-api-key":
			o.AdminAPIKey = value
		case "--logprobs-mode":
			o.Processed = value == "processed_logprobs"
		case "--generation-config":
			o.NoDefaults = value == "vllm"
		case "--incremental-streaming-output":
			o.Incremental = true
		case "--no-spans":
			o.NoSpans = true
		case "--faults":
			if o.Faults, err = readFaults(value); err != nil {
				return "", "", o, err
			}
		case "--max-logprobs", "--enable-prefix-caching", "--enable-scale-out", "--max-num-seqs", "--max-model-len", "--sampling-defaults",
			"--max-running-requests", "--context-length":
		default:
			if strings.HasPrefix(word, "--") || o.Dir != "" {
				return "", "", o, fmt.Errorf("unknown argument %s", word)
			}
			o.Dir = word
		}
	}
	if o.Dir == "" {
		return "", "", o, errors.New("no model folder")
	}
	if kind == VLLM {
		o.APIKey = os.Getenv("VLLM_API_KEY")
		if os.Getenv("VLLM_SERVER_DEV_MODE") != "1" {
			o.NoWeightInfo = true
		}
	}
	return kind, net.JoinHostPort(host, port), o, nil
}

// readFaults reads "cut:97+load:7": the name of a fault, and at every how manieth chance it happens.
func readFaults(text string) (map[string]int, error) {
	out := map[string]int{}
	for part := range strings.SplitSeq(text, "+") {
		name, number, _ := strings.Cut(part, ":")
		n, err := strconv.Atoi(number)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("--faults %q: want name:n with + between", text)
		}
		out[name] = n
	}
	return out, nil
}
