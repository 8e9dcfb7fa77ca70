// Package template renders the chat templates of published models: the Jinja text that a model folder has as chat_template.jinja,
// or in tokenizer_config.json.
//
//	t, err := template.Parse(text)
//	prompt, err := t.Render(template.Data{Messages: messages, Tools: tools, AddGenerationPrompt: true})
//
// It is the interpreter gonja with what chat templates need beside it, so that the text is, byte for byte, what transformers
// renders with jinja2: JSON written as Python writes it, objects whose keys keep their order, raise_exception and strftime_now,
// blocks whose lines leave no space, and {% generation %}. A template reads nothing but its data: include, import and extends
// are left out.
//
// testdata has the templates that the package is checked with. known.json lists the templates that gonja renders otherwise,
// with reasons.
package template
