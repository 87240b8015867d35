package quantity

import (
	"fmt"
	"strings"
)

// Count puts a number before a noun: "1 lane", "2 lanes", "0 processes".
func Count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"), strings.HasSuffix(noun, "ch"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
