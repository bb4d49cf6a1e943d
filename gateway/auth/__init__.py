"""Who a request comes from: by key, or by address when keys are not asked for."""
