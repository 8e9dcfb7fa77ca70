package streams

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Each role has an account of its own, and what it may do is imported into it, subject by subject. A list of subjects on a
// connection is not enough: a server checks where a request goes, and not where its answer is to go, so in one account whoever
// may ask for anything can have the server send something to any subject. The answer "no such message" to a read, sent to
// $JS.API.STREAM.DELETE.<stream>, removes the stream. In an account of its own a role's answers reach the role, and nobody else.

// account is where a role connects. The admin's holds the streams.
func (r Role) account() string {
	if r == RoleAdmin {
		return "WEIR"
	}
	return "WEIR_" + strings.ToUpper(string(r))
}

// JetStream's own subjects have another name in the accounts of the roles: every account has the usual ones already, answered
// by a JetStream of its own that is off.
const (
	jetStreamAPI = "$JS.API"
	importedAPI  = "_WEIR.API"
)

// imported is the name of a subject in the account of a role.
func imported(subject string) string {
	if rest, found := strings.CutPrefix(subject, jetStreamAPI+"."); found {
		return importedAPI + "." + rest
	}
	return subject
}

func importedAll(subjects []string) []string {
	all := make([]string, len(subjects))
	for i, s := range subjects {
		all[i] = imported(s)
	}
	return all
}

// service is a subject that one account answers to others.
type service struct {
	subject string
	// stream: it may be answered more than once.
	stream bool
	// patience is how long the server waits for the next answer before it forgets the question.
	patience time.Duration
}

// serviceOf says how a subject of JetStream is answered.
func serviceOf(subject string) service {
	switch {
	case strings.HasPrefix(subject, "$JS.API.CONSUMER.MSG.NEXT."): // with a heartbeat every second
		return service{subject: subject, stream: true, patience: 10 * time.Second}
	case strings.HasPrefix(subject, "$JS.API.DIRECT.GET."):
		return service{subject: subject, stream: true, patience: readStall}
	}
	return service{subject: subject, patience: attemptTimeout}
}

// calling is how the engines are called: each call is kept alive by a chunk every second.
func calling(subject string) service {
	return service{subject: subject, stream: true, patience: 30 * time.Second}
}

func (s service) String() string {
	kind := "singleton"
	if s.stream {
		kind = "stream"
	}
	return fmt.Sprintf("service: %q, response_type: %s, response_threshold: %q", s.subject, kind, s.patience)
}

// ServerConfig is the accounts of a NATS server's configuration file that give the roles their keys and what each may do, for
// brokers that are not embedded.
func (k *KeyRing) ServerConfig() (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	allowed := make(map[Role]permissions)
	exports := make(map[string][]string) // by subject, the accounts that may use it
	calls := make(map[string][]string)   // the same of the engines
	var told []string
	for _, run := range k.Runs {
		n, err := newNames(run)
		if err != nil {
			return "", err
		}
		told = append(told, n.storedSubject(">"))
	}
	for _, role := range Roles()[1:] {
		p := permissionsOf(role, k.Runs)
		allowed[role] = p
		for _, subject := range p.Publish {
			switch {
			case subject == responses:
			case k.isCall(subject):
				calls[subject] = append(calls[subject], role.account())
			default:
				exports[subject] = append(exports[subject], role.account())
			}
		}
	}
	var b strings.Builder
	b.WriteString("accounts {\n")
	for _, role := range Roles() {
		fmt.Fprintf(&b, "  %s {\n", role.account())
		switch role {
		case RoleAdmin:
			b.WriteString("    jetstream: enabled\n    exports: [\n")
			for _, subject := range slices.Sorted(maps.Keys(exports)) {
				fmt.Fprintf(&b, "      { %s, accounts: [%s] }\n", serviceOf(subject), strings.Join(exports[subject], ", "))
			}
			for _, subject := range told {
				fmt.Fprintf(&b, "      { stream: %q }\n", subject)
			}
			b.WriteString("    ]\n")
		case RoleInference:
			b.WriteString("    exports: [\n")
			for _, subject := range slices.Sorted(maps.Keys(calls)) {
				fmt.Fprintf(&b, "      { %s, accounts: [%s] }\n", calling(subject), strings.Join(calls[subject], ", "))
			}
			b.WriteString("    ]\n")
		}
		if role != RoleAdmin {
			b.WriteString("    imports: [\n")
			for _, subject := range allowed[role].Publish {
				from := RoleAdmin
				if k.isCall(subject) {
					from = RoleInference
				}
				if subject != responses {
					fmt.Fprintf(&b, "      { service: { account: %s, subject: %q }, to: %q }\n", from.account(), subject, imported(subject))
				}
			}
			for _, subject := range told {
				fmt.Fprintf(&b, "      { stream: { account: %s, subject: %q } }\n", RoleAdmin.account(), subject)
			}
			b.WriteString("    ]\n")
		}
		b.WriteString("    users: [\n")
		for _, key := range k.Public[role] {
			fmt.Fprintf(&b, "      { nkey: %s", key)
			if role != RoleAdmin {
				fmt.Fprintf(&b, ", permissions: {\n          publish: { allow: %s }\n          subscribe: { allow: %s }\n        }", list(importedAll(allowed[role].Publish)), list(allowed[role].Subscribe))
			}
			b.WriteString(" }\n")
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	return b.String(), nil
}

// isCall is whether a subject is one of the engines'.
func (k *KeyRing) isCall(subject string) bool {
	return slices.ContainsFunc(k.Runs, func(run string) bool {
		n, err := newNames(run)
		return err == nil && (subject == n.generateSubject() || subject == n.prefix()+"generate.>")
	})
}

func list(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = fmt.Sprintf("            %q", s)
	}
	return "[\n" + strings.Join(quoted, "\n") + "\n          ]"
}

// globalAccount is where a server without accounts keeps its streams.
const globalAccount = "$G"

// configure gives an embedded server the accounts and keys.
func (k *KeyRing) configure(o *server.Options) error {
	text, err := k.ServerConfig()
	if err != nil {
		return fmt.Errorf("configure broker: %w", err)
	}
	var parsed server.Options
	if err := parsed.ProcessConfigString(text); err != nil {
		return fmt.Errorf("configure broker: keys: %w", err)
	}
	for _, account := range parsed.Accounts {
		// The streams of an embedded broker are where they would be without keys, so that keys may come and go.
		if account.Name == RoleAdmin.account() {
			account.Name = globalAccount
		}
	}
	o.Accounts, o.Nkeys = parsed.Accounts, parsed.Nkeys
	return nil
}
