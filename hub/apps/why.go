package apps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Reasons are in ConfigMaps of a namespace that no tenant reads, as they name lanes of others: one for each
// App, with a text for each of its hosts, and one for what has no host.
const (
	reasons = "isolane-hub"
	pending = "pending"
	most    = 16    // hosts of an App
	longest = 50000 // bytes of a text
)

// keepWhy keeps the text of a decision, "": none.
func (c *Controller) keepWhy(ctx context.Context, app, of, text string) error {
	kept := c.Core.CoreV1().ConfigMaps(reasons)
	m, err := kept.Get(ctx, app, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return err
	}
	if _, known := m.Data[of]; text == "" && !known || len(m.Data) >= most && !known {
		return nil
	}
	if len(text) > longest {
		text = text[:longest] + "\n  …\n"
	}
	if m.Data == nil {
		m.Data = map[string]string{}
	}
	if m.Data[of] = text; text == "" {
		delete(m.Data, of)
	}
	if m.Name = app; missing {
		_, err = kept.Create(ctx, m, metav1.CreateOptions{})
	} else {
		_, err = kept.Update(ctx, m, metav1.UpdateOptions{})
	}
	return err
}

func (c *Controller) forgetWhy(ctx context.Context, app string) error {
	err := c.Core.CoreV1().ConfigMaps(reasons).Delete(ctx, app, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	return err
}

// Why says why an App, NAMESPACE/NAME or a name of the namespace default, is where it is.
func Why(ctx context.Context, core kubernetes.Interface, app string) (string, error) {
	space, name, given := strings.Cut(app, "/")
	if !given {
		space, name = corev1.NamespaceDefault, app
	}
	m, err := core.CoreV1().ConfigMaps(reasons).Get(ctx, space+"."+name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%s: no decision was made: expected an App, as NAMESPACE/NAME; "+
			"kubectl get apps -A lists them", app)
	}
	if err != nil {
		return "", errors.Join(errors.New("expected an operator"), err)
	}
	var text strings.Builder
	for _, of := range slices.Sorted(maps.Keys(m.Data)) {
		text.WriteString(m.Data[of])
	}
	return text.String(), nil
}
