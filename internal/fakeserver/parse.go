package fakeserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// Parse reads a command line: the kind, then the real server's arguments. Arguments that a fake has no use for are passed over,
// but an unknown word is not.
func Parse(args []string) (kind Kind, address string, o Options, err error) {
	if len(args) == 0 || Kind(args[0]) != VLLM && Kind(args[0]) != SGLang {
		return "", "", o, errors.New("want vllm or sglang first")
	}
	kind = Kind(args[0])
	o.Processed, o.NoDefaults = kind == SGLang, kind == SGLang // its route of calls reads no defaults
	o.NoMetrics = kind == SGLang
	routed := false
	host, port := "0.0.0.0", "8000"
	for rest := args[1:]; len(rest) > 0; {
		word, value := rest[0], ""
		rest = rest[1:]
		if strings.HasPrefix(word, "--") && len(rest) > 0 && !strings.HasPrefix(rest[0], "--") {
			value, rest = rest[0], rest[1:]
		}
		switch word {
		case "--host":
			host = value
		case "--port":
			port = value
		case scaleOut:
			if kind != VLLM || !o.Release.orOldest(kind).since(VLLM30) {
				return "", "", o, fmt.Errorf("error: unrecognized arguments: %s", scaleOut)
			}
			routed = true
		default:
			if err = o.readArgument(word, value); err != nil {
				return "", "", o, err
			}
		}
	}
	if o.Dir == "" {
		return "", "", o, errors.New("no model folder")
	}
	if kind == SGLang {
		o.NoHealthToken = os.Getenv("SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION") == "0"
	}
	if kind == VLLM {
		o.NoTokenRoute = o.Release.orOldest(kind).since(VLLM30) && !routed
		o.APIKey = os.Getenv("VLLM_API_KEY")
		if os.Getenv("VLLM_SERVER_DEV_MODE") != "1" {
			o.NoWeightInfo = true
		}
	}
	return kind, net.JoinHostPort(host, port), o, nil
}

// readArgument reads an argument that sets an option.
func (o *Options) readArgument(word, value string) (err error) {
	switch word {
	case "serve":
	case "--model-path":
		o.Dir = value
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
	case "--worker-extension-cls":
		o.Plugin = true
	case "--no-spans":
		o.NoSpans = true
	case "--release":
		o.Release = Release(value)
	case "--max-logprobs":
		o.MaxLogprobs, err = strconv.Atoi(value)
	case "--enable-prompt-tokens-details":
		o.PromptDetails = true
	case "--config":
		err = o.readConfig(value)
	case "--enable-metrics":
		o.NoMetrics = false
	case "--faults":
		o.Faults, err = readFaults(value)
	case "--enable-prefix-caching", "--max-num-seqs", "--seed", "--max-model-len", "--sampling-defaults",
		"--max-running-requests", "--context-length":
	default:
		if strings.HasPrefix(word, "--") || o.Dir != "" {
			return fmt.Errorf("unknown argument %s", word)
		}
		o.Dir = word
	}
	return err
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

// readConfig reads the keys of SGLang's --config, a file in YAML with the names of arguments.
func (o *Options) readConfig(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if value, err = strconv.Unquote(value); err != nil {
			return fmt.Errorf("--config: %q: %w", line, err)
		}
		switch name {
		case "api-key":
			o.APIKey = value
		case "admin-api-key":
			o.AdminAPIKey = value
		default:
			return fmt.Errorf("--config: unknown argument %s", name)
		}
	}
	return nil
}

// answerHelp answers vLLM's --help=WORD, and reports whether an argument has the word (0.33.0, entrypoints/utils.py).
func answerHelp(args []string) (text string, found, asked bool) {
	release, word := VLLM27, ""
	for i, a := range args {
		if a == "--release" && i+1 < len(args) {
			release = Release(args[i+1]).orOldest(VLLM)
		}
		if w, is := strings.CutPrefix(a, "--help="); is {
			word, asked = w, true
		}
	}
	if asked && release.since(VLLM30) && strings.Contains(scaleOut, word) {
		return "Parameters matching '" + word + "':\n  " + scaleOut + "\n", true, true
	}
	return "No group or parameter matching '" + word + "'\n", false, asked
}
