package claims

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// formula is such as "( sent − received ) ÷ sent", separated by spaces: + − × ÷ ( ), numbers, constants, and
// names for which the caller has values and texts.
type formula string

type constant struct {
	value float64
	text  string
}

// constants are numbers with names, and how they are printed.
func constants() map[string]constant {
	return map[string]constant{
		"year":    {year, "1 year"},
		"√2":      {math.Sqrt2, "√2"},
		"frame":   {84, "84 bytes"},                        // the smallest on the wire, with preamble and gap
		"bits":    {1, "8"},                                // all values are in bytes
		"head":    {1024, "1 KiB"},                         // of a reply, at most
		"around":  {90, "90 bytes"},                        // headers, preamble and gap, about a packet
		"tcp":     {tcp1500, percent(tcp1500)},             // of a link is payload
		"framing": {1/tcp1500 - 1, percent(1/tcp1500 - 1)}, // that frames add to it
	}
}

// tcp1500 and tcp9000 are what TCP with timestamps can carry of a link, by MTU: the payload of a segment over
// its frame with preamble, checksum and gap.
const (
	tcp1500 = 1448. / 1538
	tcp9000 = 8948. / 9038
)

// names are those that the caller has to know.
func (f formula) names() []string {
	var names []string
	for _, token := range strings.Fields(string(f)) {
		_, known := constants()[token]
		_, isNumber := numberOf(token)
		if !known && !isNumber && !strings.Contains("+−×÷()", token) && !slices.Contains(names, token) {
			names = append(names, token)
		}
	}
	return names
}

func numberOf(token string) (float64, bool) {
	digits, isPercent := strings.CutSuffix(token, "%")
	v, err := strconv.ParseFloat(digits, 64)
	if isPercent {
		v /= 100
	}
	return v, err == nil
}

// text is the formula with figures for names.
func (f formula) text(of func(name string) string) string {
	tokens := strings.Fields(string(f))
	names := f.names()
	for k, token := range tokens {
		if c, ok := constants()[token]; ok {
			tokens[k] = c.text
		} else if slices.Contains(names, token) {
			tokens[k] = of(token)
		}
	}
	return strings.NewReplacer("( ", "(", " )", ")").Replace(strings.Join(tokens, " "))
}

// value is what it gives.
func (f formula) value(of func(name string) span) span {
	c := calculation{strings.Fields(string(f)), of}
	return c.sum()
}

type calculation struct {
	tokens []string // that are left
	of     func(name string) span
}

// take returns the next token, if it is one of those where there are some.
func (c *calculation) take(these ...string) (token string) {
	if len(c.tokens) > 0 && (len(these) == 0 || slices.Contains(these, c.tokens[0])) {
		token, c.tokens = c.tokens[0], c.tokens[1:]
	}
	return token
}

func (c *calculation) sum() span {
	v := c.product()
	for {
		switch c.take("+", "−") {
		case "+":
			v = combine(v, c.product(), func(a, b float64) float64 { return a + b })
		case "−":
			v = combine(v, c.product(), func(a, b float64) float64 { return a - b })
		default:
			return v
		}
	}
}

func (c *calculation) product() span {
	v := c.factor()
	for {
		switch c.take("×", "÷") {
		case "×":
			v = combine(v, c.factor(), func(a, b float64) float64 { return a * b })
		case "÷":
			v = combine(v, c.factor(), func(a, b float64) float64 { return a / b })
		default:
			return v
		}
	}
}

func (c *calculation) factor() span {
	token := c.take()
	if token == "(" {
		v := c.sum()
		c.take(")")
		return v
	}
	if known, ok := constants()[token]; ok {
		return exactly(known.value)
	}
	if v, ok := numberOf(token); ok {
		return exactly(v)
	}
	return c.of(token)
}
