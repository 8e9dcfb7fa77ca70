// Package files is the tools of that type: reading, writing, changing and listing the files of the episode's sandbox.
//
//	tools: {files: {type: files}}
//
// They are read_file, write_file, edit_file and list_files, each with a schema. Names are relative to the sandbox's working folder; no link
// is followed, and nothing outside the folder is reached. See package workspace for the sandbox.
package files
