// Package mcp makes tools of the tools that a server of the Model Context Protocol offers (https://modelcontextprotocol.io), by the
// official SDK: a program over standard input and output, or a service over streamable HTTP.
//
//	tools:
//	  files: {type: mcp, command: [mcp-files, /data], allow: [read_file]}
//	  web: {type: mcp, url: "https://tools.example/mcp", token_env: WEB_TOKEN, allow: ["*"]}
//
// Each tool that allow names is a tool of the agent's. The list is read once, when the run starts: tools that a server adds or renames
// later are not offered. Each episode has a session of its own, opened at its first call, so that a stateful server keeps episodes apart.
//
// A program is started in a sandbox of its own for each session, in the pool of the episodes' workspaces: without a network, without the
// environment of Weir's, and with the files that its configuration names to read. Everything in the sandbox is killed with the session.
// sandbox: false starts it as a plain child in a process group of its own.
package mcp
