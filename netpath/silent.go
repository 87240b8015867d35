package netpath

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// silent begins the value of what a switch cannot be asked about. It is a value and no error, so that lanes
// can be inspected while the switch restarts.
const silent = "unknown: "

// Unread returns the value for a switch that could not be asked.
func Unread(ctx context.Context, err error) (string, error) {
	if ctx.Err() != nil || errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	return silent + err.Error(), nil
}

// IsUnread reports whether Unread returned a value.
func IsUnread(value string) bool { return strings.HasPrefix(value, silent) }
