package probe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Rate is how many messages leave per second in an open loop. With Max, written "max", each leaves as soon as
// it can.
type Rate float64

// Max is the Rate "max".
const Max Rate = 0

// UnmarshalJSON accepts a number, or "max".
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

// MarshalJSON is the inverse of UnmarshalJSON.
func (r Rate) MarshalJSON() ([]byte, error) {
	if r == Max {
		return []byte(`"max"`), nil
	}
	return json.Marshal(float64(r))
}

// AtMost rejects a rate that is too high for a program. what names the messages.
func (r Rate) AtMost(most Rate, what string) error {
	if r > most {
		return fmt.Errorf("rate: %g: expected up to %g %s per second, or max", float64(r), float64(most), what)
	}
	return nil
}
