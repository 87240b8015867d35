// Package sites is the hub's side of sites: what it adds to the Kubernetes API, the tokens by which hosts
// join, and the certificates of the hosts that have joined.
package sites

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"isolane.dev/isolane/hub/api"
)

// fieldManager is the field manager of these fields at the API server.
const fieldManager = "isolane-hub"

// Own is the namespace for what only the hub needs.
const Own = "isolane-hub"

// Install creates the kinds of resources and the rights of hosts, and returns once they are served.
func Install(ctx context.Context, client dynamic.Interface) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(api.Manifests), 4096)
	for {
		var u unstructured.Unstructured
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if err := apply(ctx, client, &u); err != nil {
			return err
		}
	}
	for _, name := range []string{"sites", "hosts", "instances", "apps", "tenants", "quotas"} {
		if err := served(ctx, client, api.Resource(name)); err != nil {
			return err
		}
	}
	return nil
}

// apply creates or updates a cluster-wide resource.
func apply(ctx context.Context, client dynamic.Interface, u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	plural := strings.ToLower(gvk.Kind) + "s"
	if stem, is := strings.CutSuffix(plural, "ys"); is {
		plural = stem + "ies"
	}
	resource := schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: plural}
	_, err := client.Resource(resource).Namespace(u.GetNamespace()).Apply(ctx, u.GetName(), u,
		metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return fmt.Errorf("%s %s: %w", gvk.Kind, u.GetName(), err)
	}
	return nil
}

// served waits until the API server serves a resource that was just created.
func served(ctx context.Context, client dynamic.Interface, resource schema.GroupVersionResource) error {
	for {
		_, err := client.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1})
		if !apierrors.IsNotFound(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}
