package schemas

import "strings"

// Role is the part that an agent plays in an episode, by the agent's name: the name without the number behind its last hyphen, so that
// solver-1 and solver-2 both have the role solver. A name without such a number is its own role.
func Role(agent string) string {
	at := strings.LastIndexByte(agent, '-')
	if at < 1 || at == len(agent)-1 || strings.Trim(agent[at+1:], "0123456789") != "" {
		return agent
	}
	return agent[:at]
}
