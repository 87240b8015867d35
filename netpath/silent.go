package netpath

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// silent begins what is said to be there where a switch cannot be asked. It is a value, so that lanes can be
// looked at while it is started anew, and no error.
const silent = "unknown: "

// Unread returns what is there where a switch could not be asked.
func Unread(ctx context.Context, err error) (string, error) {
	if ctx.Err() != nil || errors.Is(err, fs.ErrPermission) {
		return "", err
	}
	return silent + err.Error(), nil
}

// IsUnread reports whether a value is one of Unread.
func IsUnread(value string) bool { return strings.HasPrefix(value, silent) }
