package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Rate is how often a second something is to leave, in an open loop. With Max, which is written "max", the
// next leaves as soon as it can.
type Rate float64

// Max is the Rate "max".
const Max Rate = 0

// UnmarshalJSON reads a number, or "max".
func (r *Rate) UnmarshalJSON(data []byte) error {
	if string(data) == `"max"` {
		*r = Max
		return nil
	}
	v, err := strconv.ParseFloat(string(bytes.Trim(data, `"`)), 64)
	if err != nil || !(v > 0) || math.IsInf(v, 1) {
		return fmt.Errorf("%s: expected more than 0 per second, or max", data)
	}
	*r = Rate(v)
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Rate) MarshalJSON() ([]byte, error) {
	if r == Max {
		return []byte(`"max"`), nil
	}
	return json.Marshal(float64(r))
}

// AtMost refuses a rate that a program cannot have; what says of what it is.
func (r Rate) AtMost(most Rate, what string) error {
	if r > most {
		return fmt.Errorf("rate: %g: expected up to %g %s per second, or max", float64(r), float64(most), what)
	}
	return nil
}
