package broker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/weir-rl/weir/streams"
)

// Each role has an account of its own, and the subjects that it may use are imported into it, subject by subject. A list of subjects on a
// connection is not enough: a server checks where a request goes, and not where its answer is to go, so in a shared account whoever
// may ask for anything can have the server send something to any subject. The answer "no such message" to a read, sent to
// $JS.API.STREAM.DELETE.<stream>, removes the stream. In an account of its own a role's answers reach the role, and nobody else.

// accountOf is the account in which a role connects. The admin's account holds the streams.
func accountOf(role streams.Role) string {
	if role == streams.RoleAdmin {
		return "WEIR"
	}
	return "WEIR_" + strings.ToUpper(string(role))
}

// serviceSubject is how the account that answers a subject exports it.
func serviceSubject(subject string) string {
	answer, kind := streams.AnswerTo(subject), "singleton"
	if answer.Many {
		kind = "stream"
	}
	return fmt.Sprintf("service: %q, response_type: %s, response_threshold: %q", subject, kind, answer.Within)
}

// ServerConfig is the accounts of a NATS server's configuration file that give the roles their keys and the subjects that each may use, for
// brokers that are not embedded.
func (k *KeyRing) ServerConfig() (string, error) {
	if err := k.Validate(); err != nil {
		return "", err
	}
	c := serverConfig{
		rights: make(map[streams.Role]streams.Permissions), requests: make(map[string][]string), calls: make(map[string][]string),
		stored: streams.StoredSubjects(k.Runs...),
	}
	for _, role := range streams.Roles()[1:] {
		p := streams.PermissionsOf(role, k.Runs...)
		c.rights[role] = p
		for _, subject := range p.Requests {
			c.requests[subject] = append(c.requests[subject], accountOf(role))
		}
		for _, subject := range p.Calls {
			c.calls[subject] = append(c.calls[subject], accountOf(role))
		}
	}
	c.writeLine("accounts {")
	for _, role := range streams.Roles() {
		c.writeLine("  %s {", accountOf(role))
		switch role {
		case streams.RoleAdmin:
			c.writeLine("    jetstream: enabled")
			c.writeExports(c.requests, c.stored)
		case streams.RoleInference, streams.RoleTools, streams.RoleProducer:
			c.writeExports(c.answeredCalls(role), nil)
		}
		if role != streams.RoleAdmin {
			c.writeImports(role)
		}
		c.writeUsers(role, k.Public[role])
		c.writeLine("  }")
	}
	c.writeLine("}")
	return c.text.String(), nil
}

// serverConfig is the text of the accounts while it is written.
type serverConfig struct {
	text   strings.Builder
	rights map[streams.Role]streams.Permissions
	// requests and calls are the accounts that may use a subject: of the admin's account, and of the roles that answer calls.
	requests, calls map[string][]string
	stored          []string
}

func (c *serverConfig) writeLine(format string, args ...any) {
	fmt.Fprintf(&c.text, format+"\n", args...)
}

// answeredCalls are the calls that a role answers.
func (c *serverConfig) answeredCalls(role streams.Role) map[string][]string {
	own := map[string][]string{}
	for subject, accounts := range c.calls {
		if streams.ServedBy(subject) == role {
			own[subject] = accounts
		}
	}
	return own
}

// writeExports lets other accounts use subjects of the account that is being written.
func (c *serverConfig) writeExports(services map[string][]string, stored []string) {
	c.writeLine("    exports: [")
	for _, subject := range slices.Sorted(maps.Keys(services)) {
		c.writeLine("      { %s, accounts: [%s] }", serviceSubject(subject), strings.Join(services[subject], ", "))
	}
	for _, subject := range stored {
		c.writeLine("      { stream: %q }", subject)
	}
	c.writeLine("    ]")
}

// writeImports brings into the account of a role the subjects that the role may use.
func (c *serverConfig) writeImports(role streams.Role) {
	p := c.rights[role]
	c.writeLine("    imports: [")
	for _, subject := range sortSubjects(p.Requests, p.Calls) {
		c.writeLine("      { service: { account: %s, subject: %q }, to: %q }", accountOf(streams.ServedBy(subject)), subject, streams.ImportedSubject(subject))
	}
	for _, subject := range c.stored {
		c.writeLine("      { stream: { account: %s, subject: %q } }", accountOf(streams.RoleAdmin), subject)
	}
	c.writeLine("    ]")
}

// writeUsers are the keys of a role, each with the subjects that the role may use in its account. The admin's may use all.
func (c *serverConfig) writeUsers(role streams.Role, keys []string) {
	c.writeLine("    users: [")
	for _, key := range keys {
		if role == streams.RoleAdmin {
			c.writeLine("      { nkey: %s }", key)
			continue
		}
		p := c.rights[role]
		publish := sortSubjects(p.Requests, p.Calls, p.Replies)
		for i, subject := range publish {
			publish[i] = streams.ImportedSubject(subject)
		}
		c.writeLine("      { nkey: %s, permissions: {\n          publish: { allow: %s }\n          subscribe: { allow: %s }\n        } }",
			key, listSubjects(publish), listSubjects(p.Subscribe))
	}
	c.writeLine("    ]")
}

func sortSubjects(subjects ...[]string) []string {
	all := slices.Concat(subjects...)
	slices.Sort(all)
	return all
}

func listSubjects(subjects []string) string {
	quoted := make([]string, len(subjects))
	for i, s := range subjects {
		quoted[i] = fmt.Sprintf("            %q", s)
	}
	return "[\n" + strings.Join(quoted, "\n") + "\n          ]"
}

// globalAccount is where a server without accounts keeps its streams.
const globalAccount = "$G"

// configureServer gives an embedded server the accounts and keys.
func (k *KeyRing) configureServer(o *server.Options) error {
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
		if account.Name == accountOf(streams.RoleAdmin) {
			account.Name = globalAccount
		}
	}
	o.Accounts, o.Nkeys = parsed.Accounts, parsed.Nkeys
	return nil
}
