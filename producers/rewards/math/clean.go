package math

import (
	"regexp"
	"strings"
)

// answer is a text made ready to be read: its contents without markup.
type answer struct {
	text string
	// unit is a unit behind a number, in the singular: "cm", "dollar", "degree", "percent"; "" for none.
	unit string
}

var dress = strings.NewReplacer(
	`\\`, `\\`, // the end of a matrix's row is no command before a space
	`\left`, "", `\right`, "", `\bigl`, "", `\bigr`, "", `\big`, "", `\Big`, "", `\displaystyle`, "", `\textstyle`, "", `\!`, "", `\,`, " ", `\;`, " ", `\:`, " ", `\ `, " ",
	`\quad`, " ", `\qquad`, " ", `\dfrac`, `\frac`, `\tfrac`, `\frac`, `\cfrac`, `\frac`, `\lbrace`, `\{`, `\rbrace`, `\}`, `\lbrack`, "[", `\rbrack`, "]",
	`\geq`, `\ge`, `\leq`, `\le`, `\neq`, `\ne`, `\vert`, "|", `\mid`, "|", "\u2212", "-", "\u2013", "-", "\u00d7", `\times `, "\u00b7", `\cdot `, "\u00f7", "/", "\u2044", "/",
	"\u221e", `\infty `, "\u03c0", `\pi `, "\u222a", `\cup `, "\u00b0", `^\circ`, "\u00b1", `\pm `, "\u2264", `\le `, "\u2265", `\ge `, "\u221a", `\sqrt `,
	"\u00b2", "^2", "\u00b3", "^3", "\u00bd", `\frac{1}{2}`, "\u00bc", `\frac{1}{4}`, "\u00be", `\frac{3}{4}`, "\u00a0", " ", "\u202f", " ", "**", "^", `\degree`, `^\circ`,
	`{,}`, ",", `\mathbf`, `\text`, `\textbf`, `\text`, `\mathrm`, `\text`, `\textit`, `\text`, `\mbox`, `\text`, `\operatorname`, `\text`, `\textrm`, `\text`, `\rm`, "",
)

var (
	script   = regexp.MustCompile(`_\{([0-9A-Za-z])\}`)
	grouped  = regexp.MustCompile(`(^|[^0-9,.])([0-9]{1,3}(?:,[0-9]{3})+)((?:\.[0-9]+)?)($|[^0-9,])`)
	spaced   = regexp.MustCompile(`^([+-]?[0-9]{1,3}(?: [0-9]{3})+)((?:\.[0-9]+)?)$`)
	lettered = regexp.MustCompile(`^\(?([A-J])\)?[.:]?$`)
	mixedNum = regexp.MustCompile(`^([+-]?)([1-9][0-9]*) +([0-9]+)\s*/\s*([0-9]+)$`)
	science  = regexp.MustCompile(`^([+-]?[0-9]+(?:\.[0-9]+)?)[eE]([+-]?[0-9]{1,3})$`)
	behind   = regexp.MustCompile(`^(.*[0-9})a-z!])\s*(?:\\text\s*\{\s*([^{}]*?)\s*\}|(?:\s|^)([A-Za-z][A-Za-z ]+))(?:\^\{?[23]\}?)?$`)
	named    = regexp.MustCompile(`^(?:\\text\s*\{[^{}]*\}|[A-Za-z](?:_\{?[A-Za-z0-9]+\}?)?|[a-zA-Z]\([a-z]\))\s*(?:=|\\in)([^=<>]*)$`)
)

// turned is an equation whose right side is a name.
var turned = regexp.MustCompile(`^([^=<>]*[^=<> ])\s*=\s*[A-Za-z]$`)

// unwrapText returns the content of \text{} or \boxed{}, where nothing stands beside it.
func unwrapText(s string) string {
	for _, command := range []string{`\text`, `\boxed`, `\fbox`} {
		rest, ok := strings.CutPrefix(s, command)
		rest = strings.TrimSpace(rest)
		if !ok || !strings.HasPrefix(rest, "{") {
			continue
		}
		depth := 0
		for i := range len(rest) {
			switch rest[i] {
			case '{':
				depth++
			case '}':
				depth--
			}
			if depth == 0 && i < len(rest)-1 {
				return s
			}
		}
		if depth == 0 {
			return unwrapText(strings.TrimSpace(rest[1 : len(rest)-1]))
		}
	}
	return s
}

// cleanAnswer removes the notation around an answer.
func cleanAnswer(s string) answer {
	s = strings.TrimSpace(strings.TrimRight(s, " .。\n"))
	for _, pair := range [][2]string{{"$$", "$$"}, {"$", "$"}, {`\(`, `\)`}, {`\[`, `\]`}} {
		if len(s) > len(pair[0])+len(pair[1]) && strings.HasPrefix(s, pair[0]) && strings.HasSuffix(s, pair[1]) && !strings.HasSuffix(s, `\$`) {
			s = strings.TrimSpace(s[len(pair[0]) : len(s)-len(pair[1])])
		}
	}
	s = strings.TrimSpace(strings.TrimRight(s, " .。\n"))
	s = strings.TrimSpace(dress.Replace(s))
	s = script.ReplaceAllString(unwrapText(s), "_$1")
	a := answer{text: s}
	a.stripMoney()
	a.stripPercent()
	a.stripDegrees()
	if a.unit == "" {
		a.stripUnit()
	}
	if m := named.FindStringSubmatch(a.text); m != nil && strings.TrimSpace(m[1]) != "" {
		a.text = strings.TrimSpace(m[1])
	} else if m := turned.FindStringSubmatch(a.text); m != nil {
		a.text = strings.TrimSpace(m[1])
	}
	a.text = normalizeNumbers(a.text)
	return a
}

// normalizeNumbers takes the separators of thousands out of numbers that stand outside brackets, and writes mixed and scientific numbers as
// LaTeX does.
func normalizeNumbers(s string) string {
	if m := spaced.FindStringSubmatch(s); m != nil {
		return strings.ReplaceAll(m[1], " ", "") + m[2]
	}
	if m := mixedNum.FindStringSubmatch(s); m != nil {
		return m[1] + m[2] + `\frac{` + m[3] + "}{" + m[4] + "}"
	}
	if m := science.FindStringSubmatch(s); m != nil {
		return m[1] + `\times 10^{` + m[2] + "}"
	}
	if strings.ContainsAny(s, "([{") && !strings.Contains(s, `\frac`) && !strings.Contains(s, `\sqrt`) {
		return s
	}
	for {
		next := grouped.ReplaceAllStringFunc(s, func(m string) string {
			p := grouped.FindStringSubmatch(m)
			return p[1] + strings.ReplaceAll(p[2], ",", "") + p[3] + p[4]
		})
		if next == s {
			return s
		}
		s = next
	}
}

// stripMoney removes a sign of money.
func (a *answer) stripMoney() {
	for sign, unit := range map[string]string{`\$`: "dollar", "$": "dollar", "€": "euro", "£": "pound", `\pounds`: "pound"} {
		if rest, ok := strings.CutPrefix(a.text, sign); ok && strings.Count(rest, sign) == 0 {
			a.text, a.unit = strings.TrimSpace(rest), unit
		} else if rest, ok := strings.CutSuffix(a.text, sign); ok && strings.Count(rest, sign) == 0 {
			a.text, a.unit = strings.TrimSpace(rest), unit
		}
		if rest, ok := strings.CutPrefix(a.text, "-"+sign); ok && strings.Count(rest, sign) == 0 {
			a.text, a.unit = "-"+strings.TrimSpace(rest), unit
		}
	}
}

// stripPercent removes a percent sign.
func (a *answer) stripPercent() {
	for _, sign := range []string{`\%`, "%", `\text{percent}`, `\text{ percent}`, " percent", " pct", " percentage", " per cent"} {
		if rest, ok := strings.CutSuffix(a.text, sign); ok && strings.TrimSpace(rest) != "" {
			a.text, a.unit = strings.TrimSpace(rest), percent
			return
		}
	}
}

// percent is the unit of hundredths.
const percent = "percent"

// stripDegrees removes a degree sign.
func (a *answer) stripDegrees() {
	for _, sign := range []string{`^\circ`, `^{\circ}`, `^ \circ`, `\circ`, " degrees", " degree", `\text{ degrees}`, `\text{degrees}`} {
		if rest, ok := strings.CutSuffix(a.text, sign); ok && strings.TrimSpace(rest) != "" {
			a.text, a.unit = strings.TrimSpace(rest), "degree"
			return
		}
	}
}

// stripUnit removes a unit behind a number.
func (a *answer) stripUnit() {
	m := behind.FindStringSubmatch(a.text)
	if m == nil {
		return
	}
	unit := strings.ToLower(strings.TrimSpace(m[2] + m[3]))
	if m[3] != "" && !units[unitName(unit)] || unit == "" || strings.Contains(unit, " or ") || unit == "or" || unit == "and" {
		return
	}
	power := ""
	if strings.HasSuffix(a.text, "^2") || strings.HasSuffix(a.text, "^{2}") {
		power = "^2"
	} else if strings.HasSuffix(a.text, "^3") || strings.HasSuffix(a.text, "^{3}") {
		power = "^3"
	}
	a.text, a.unit = strings.TrimSpace(m[1]), unitName(unit)+power
}

// units are the words that are taken for a unit where they stand behind a number outside \text{}.
var units = map[string]bool{
	"cm": true, "mm": true, "km": true, "kg": true, "meter": true, "metre": true, "centimeter": true, "kilometer": true, "inch": true, "foot": true, "yard": true,
	"mile": true, "second": true, "minute": true, "hour": true, "day": true, "week": true, "month": true, "year": true, "dollar": true, "cent": true, "euro": true,
	"gram": true, "kilogram": true, "pound": true, "liter": true, "litre": true, "gallon": true, "unit": true, "square unit": true, "cubic unit": true, "mph": true,
	"people": true, "student": true, "apple": true, "point": true, "square meter": true, "square inch": true, "square foot": true, "cubic inch": true, "radian": true,
}

// unitName returns the canonical name of a unit.
func unitName(unit string) string {
	for long, short := range map[string]string{"centimeter": "cm", "millimeter": "mm", "kilometer": "km", "kilogram": "kg", "metre": "meter", "litre": "liter"} {
		if unit == long || unit == long+"s" {
			return short
		}
	}
	switch unit {
	case "feet", "ft":
		return "foot"
	case "inches", "in":
		return "inch"
	case "square feet":
		return "square foot"
	case "square inches":
		return "square inch"
	case "cubic inches":
		return "cubic inch"
	case "m":
		return "meter"
	case "s", "sec":
		return "second"
	}
	if len(unit) > 3 {
		return strings.TrimSuffix(unit, "s")
	}
	return unit
}
